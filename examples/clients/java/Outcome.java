import com.google.gson.JsonElement;

/** How a performance ended: an element of what return_and_own_tasks takes, whose keys are these. */
record Outcome(
        String task_id, String token, String status_code, String status, JsonElement result, Boolean count_try) {

    static Outcome completed(Task task, JsonElement result) {
        return new Outcome(task.id(), task.token(), "completed", null, result, null);
    }

    static Outcome aborted(Task task, String status) {
        return new Outcome(task.id(), task.token(), "aborted", printable(status), null, null);
    }

    /** When it is tried again is the queue's business: the back-off of the task, of its action, or of all. */
    static Outcome retry(Task task, String status) {
        return new Outcome(task.id(), task.token(), "pending", printable(status), null, null);
    }

    /** It has not failed: it uses up no try, and need not wait for the back-off. */
    static Outcome givenBack(Task task) {
        return new Outcome(task.id(), task.token(), "pending", "given back by a worker that stops", null, false);
    }

    Outcome abortedInstead(String status) {
        return new Outcome(task_id, token, "aborted", printable(status), null, null);
    }

    /** What a text of PostgreSQL can hold. */
    private static String printable(String text) {
        return text == null ? null : text.replace("\0", "");
    }
}
