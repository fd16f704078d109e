import com.google.gson.Gson;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Pattern;

/** The queue's calls over one connection, opened again as often as it takes. */
final class Link {
    /** Seconds of one waiting call. */
    private static final double WAIT = 10;

    /**
     * The end of the connection, a server that starts or stops, too many connections; and a standby, since a failover, or
     * not yet promoted: another connection may find the primary.
     */
    private static final Pattern ELSEWHERE = Pattern.compile("(08|57P|53300|25006).*");

    private static final String ACTOR = Settings.host() + ":" + ProcessHandle.current().pid();
    private static final double LEASE = Worker.LEASE / 1000.0;

    /** By System.nanoTime(); after that nothing is tried again. */
    private static volatile long giveUpAt;
    private static volatile boolean ending;

    private Connection connection;
    /** What is asleep in the server, so that another thread may end that. */
    private volatile Statement asleep;

    static void giveUpIn(long millis) {
        giveUpAt = System.nanoTime() + millis * 1_000_000;
        ending = true;
    }

    /** Up to so many tasks. Sleeps in the server until there are some. */
    List<Task> own(List<String> actions, int number) throws SQLException {
        String query = """
            SELECT NULL, task_id, token::text, action, body, num_tries
              FROM taskq.own_tasks(?, ?, ?, ? * interval '1 second', wait => ? * interval '1 second')""";
        try {
            return call(true, Task::of, query, ACTOR, number, texts(actions), LEASE, WAIT);
        } catch (SQLException error) {
            if ("57014".equals(error.getSQLState())) {
                return List.of(); // the wait was ended; nothing was granted
            }
            throw error;
        }
    }

    /** Moves the deadlines; of each task, in their order, whether it is still ours. */
    List<Boolean> extend(List<Task> tasks) throws SQLException {
        String query = "SELECT owned FROM taskq.extend_tasks_ownership(?, ?, ?::uuid[], ? * interval '1 second')";
        String[] ids = texts(tasks.stream().map(Task::id).toList());
        String[] tokens = texts(tasks.stream().map(Task::token).toList());
        return call(false, row -> row.getBoolean(1), query, ACTOR, ids, tokens, LEASE);
    }

    /** Returns tasks, and takes up to so many others, with one call; a bad token spoils only its own row. */
    List<Task> give(List<Outcome> returns, List<String> actions, int number) throws SQLException {
        String query = """
            SELECT sqlstate, task_id, token::text, action, body, num_tries
              FROM taskq.return_and_own_tasks(?, ?::jsonb, ?, ?, ? * interval '1 second')""";
        try {
            String list = new Gson().toJson(returns);
            List<Task> rows = call(false, Task::of, query, ACTOR, list, number, texts(actions), LEASE);
            // TQ001, TQ003: cancelled, deleted, taken over, or returned by us and only the answer was lost.
            rows.stream().filter(Task::refused)
                .forEach(row -> Settings.log(row.id() + ": dropped, it is not ours any more (" + row.sqlstate() + ")"));
            return rows.stream().filter(row -> !row.refused()).toList();
        } catch (SQLException error) {
            if (error.getSQLState() == null || !error.getSQLState().startsWith("22")) {
                throw error;
            }
            return giveSingly(returns, actions, number, error);
        }
    }

    /** Finds out which result the server cannot store, one with a NUL for example. The next try would have no other. */
    private List<Task> giveSingly(List<Outcome> returns, List<String> actions, int number, SQLException refusal)
            throws SQLException {
        if (returns.size() == 1) {
            Outcome outcome = returns.get(0);
            if (outcome.result() == null) {
                throw refusal;
            }
            Settings.log(outcome.task_id() + ": its result cannot be stored: " + refusal.getMessage());
            String status = "its result cannot be stored: " + refusal.getMessage();
            return give(List.of(outcome.abortedInstead(status)), actions, number);
        }
        List<Task> tasks = new ArrayList<>();
        for (Outcome outcome : returns) {
            tasks.addAll(give(List.of(outcome), actions, tasks.size() < number ? 1 : 0));
        }
        return tasks;
    }

    /** Ends what is asleep in the server. Called by another thread. */
    void cancelSleep() {
        try {
            Statement statement = asleep;
            if (statement != null) {
                statement.cancel();
            }
        } catch (SQLException error) {
            Settings.log("no cancel: " + error.getMessage());
        }
    }

    private interface Reader<T> {
        T read(ResultSet row) throws SQLException;
    }

    /** The rows of a query in a transaction of its own. A query may run twice if its answer gets lost. */
    private <T> List<T> call(boolean sleeps, Reader<T> reader, String query, Object... arguments) throws SQLException {
        for (long delay = 100; ; delay = Math.min(delay * 2, 10_000)) {
            try {
                return attempt(sleeps, reader, query, arguments);
            } catch (SQLException error) {
                String state = error.getSQLState();
                boolean elsewhere = state != null && ELSEWHERE.matcher(state).matches();
                if (!elsewhere || ending && System.nanoTime() > giveUpAt) {
                    throw error;
                }
                Settings.log("no connection, again in about " + delay + " ms: " + error.getMessage());
                close();
            }
            try {
                Thread.sleep((long) (delay * ThreadLocalRandom.current().nextDouble(0.5, 1.5)));
            } catch (InterruptedException error) {
                throw new SQLException("interrupted", error);
            }
        }
    }

    private <T> List<T> attempt(boolean sleeps, Reader<T> reader, String query, Object... arguments) throws SQLException {
        if (connection == null || connection.isClosed()) {
            connection = DriverManager.getConnection(Settings.url(), Settings.properties((int) WAIT + 30));
        }
        try (PreparedStatement statement = connection.prepareStatement(query)) {
            for (int n = 0; n < arguments.length; n++) {
                Object argument = arguments[n];
                statement.setObject(n + 1, argument instanceof String[] texts ? connection.createArrayOf("text", texts) : argument);
            }
            asleep = sleeps ? statement : null;
            List<T> rows = new ArrayList<>();
            try (ResultSet result = statement.executeQuery()) {
                while (result.next()) {
                    rows.add(reader.read(result));
                }
            }
            return rows;
        } finally {
            asleep = null;
        }
    }

    private static String[] texts(List<String> list) {
        return list.toArray(String[]::new);
    }

    private void close() {
        try {
            if (connection != null) {
                connection.close();
            }
        } catch (SQLException error) {
            Settings.log("not closed: " + error.getMessage());
        }
        connection = null;
    }
}
