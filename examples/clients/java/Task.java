import java.sql.ResultSet;
import java.sql.SQLException;

/** A row of own_tasks; with an SQLSTATE it is a return that was refused. */
record Task(String sqlstate, String id, String token, String action, String body, int tries) {
    static Task of(ResultSet row) throws SQLException {
        String body = row.getString(5);
        return new Task(
            row.getString(1), row.getString(2), row.getString(3), row.getString(4), body == null ? "" : body, row.getInt(6));
    }

    boolean refused() {
        return sqlstate != null;
    }
}
