import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.LocalTime;
import java.util.Properties;

/** PGHOST and the like, of which the driver knows nothing. */
final class Settings {
    private Settings() {}

    static String variable(String name, String ifUnset) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? ifUnset : value;
    }

    static long millis(String name, double seconds) {
        return (long) (Double.parseDouble(variable(name, String.valueOf(seconds))) * 1000);
    }

    static String url() {
        return "jdbc:postgresql://" + variable("PGHOST", "localhost") + ":" + variable("PGPORT", "5432") + "/"
            + variable("PGDATABASE", "postgres");
    }

    /** For calls of so many seconds at most: after that the server has vanished. */
    static Properties properties(int longest) {
        Properties properties = new Properties();
        properties.setProperty("user", variable("PGUSER", "postgres"));
        properties.setProperty("password", variable("PGPASSWORD", ""));
        properties.setProperty("ApplicationName", "taskq worker");
        properties.setProperty("connectTimeout", "5");
        properties.setProperty("socketTimeout", String.valueOf(longest));
        properties.setProperty("tcpKeepAlive", "true");
        // No named prepared statements, so that PgBouncer may stand in between.
        properties.setProperty("prepareThreshold", "0");
        return properties;
    }

    static String host() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException error) {
            return "worker";
        }
    }

    static void log(String text) {
        System.err.println(LocalTime.now() + " " + text);
    }
}
