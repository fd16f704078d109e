import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.StringTokenizer;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A worker for taskq in Java (JDBC) with many tasks at once: one heartbeat for all of them, returns in batches that bring
 * the next tasks along.
 *
 * <pre>PGHOST=... PGDATABASE=... java -cp ... Worker [ACTION,...] [TASKS]</pre>
 *
 * <p>Two connections, however many tasks: one sleeps until there is work, the other extends, returns and takes the next.
 * SIGTERM or SIGINT: it takes no more, lets the tasks in hand finish within the grace, and gives back what does not. A
 * task that was cancelled or taken over is dropped as soon as a heartbeat hears of it.
 */
public final class Worker {
    /** Performs a task, given its body. It must heed the interruption of its thread; its result is kept with the task. */
    interface Handler {
        Object perform(JsonObject body) throws Exception;
    }

    /** What the worker can do: the action of a task, and the handler that performs it. */
    static final Map<String, Handler> HANDLERS = Map.of("checksum", Worker::checksum, "words", Worker::words);

    /** Milliseconds that a death of this process goes unnoticed. */
    static final long LEASE = Settings.millis("TASKQ_LEASE", 60);
    /** Milliseconds to finish after SIGTERM; less than the supervisor grants. */
    static final long GRACE = Settings.millis("TASKQ_GRACE", 20);

    /** The task can never succeed: no further try makes sense. */
    static final class Rejected extends Exception {
        Rejected(String reason) {
            super(reason);
        }
    }

    static Object checksum(JsonObject body) throws Exception {
        String text = text(body);
        if (body.has("fail")) {
            throw new IOException(body.get("fail").getAsString()); // anything else may work the next time
        }
        if (body.has("seconds")) {
            Thread.sleep((long) (body.get("seconds").getAsDouble() * 1000));
        }
        byte[] sum = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
        int ten = text.offsetByCodePoints(0, Math.min(10, text.codePointCount(0, text.length())));
        return Map.of("sha256", HexFormat.of().formatHex(sum), "head", text.substring(0, ten), "client", "java");
    }

    static Object words(JsonObject body) throws Rejected {
        return Map.of("words", new StringTokenizer(text(body)).countTokens(), "client", "java");
    }

    private static String text(JsonObject body) throws Rejected {
        JsonElement text = body.get("text");
        if (text == null || !text.isJsonPrimitive()) {
            throw new Rejected("the body lacks a text");
        }
        return text.getAsString();
    }

    private static JsonObject body(Task task) throws Rejected {
        try {
            return JsonParser.parseString(task.body()).getAsJsonObject();
        } catch (JsonParseException | IllegalStateException error) {
            throw new Rejected("the body cannot be read: " + error.getMessage());
        }
    }

    /** Performs a task; how it ended is returned with what ends at the same time. */
    private static Outcome work(Task task) {
        Settings.log(task.id() + ": try " + task.tries());
        try {
            return Outcome.completed(task, json(HANDLERS.get(task.action()).perform(body(task))));
        } catch (InterruptedException error) {
            return Outcome.givenBack(task);
        } catch (Rejected error) {
            return Outcome.aborted(task, error.getMessage());
        } catch (Exception | StackOverflowError error) {
            return Outcome.retry(task, error.toString());
        }
    }

    /** The result, which must be JSON. One that is none must not end the worker: the task is rejected. */
    private static JsonElement json(Object result) throws Rejected {
        try {
            return new Gson().toJsonTree(result);
        } catch (RuntimeException | StackOverflowError error) {
            throw new Rejected("its result is no JSON: " + error.getMessage());
        }
    }

    /** A task in hand, until it is returned. */
    private static final class Performance {
        final Task task;
        final Thread handler;
        boolean lost;
        Outcome outcome;

        Performance(Task task, Worker worker) {
            this.task = task;
            handler = new Thread(() -> {
                Outcome end = work(task);
                worker.tell(() -> worker.ended(this, end));
            });
            handler.setDaemon(true);
        }
    }

    /** Something that has happened. All of it is told to the thread of run(), which alone touches what follows. */
    private interface Event {
        void happen() throws SQLException;
    }

    private final BlockingQueue<Event> events = new LinkedBlockingQueue<>();
    private final List<String> actions;
    private final int most;
    private final Link waiter = new Link();
    private final Link link = new Link();
    private final List<Performance> hand = new ArrayList<>();
    private boolean stopping;
    private boolean owning;
    private boolean late;
    private final AtomicBoolean beating = new AtomicBoolean();

    private final ScheduledExecutorService clock = Executors.newScheduledThreadPool(1, task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });

    private Worker(List<String> actions, int most) {
        this.actions = actions;
        this.most = most;
    }

    private void tell(Event event) {
        events.add(event);
    }

    private void run() throws SQLException, InterruptedException {
        clock.scheduleWithFixedDelay(this::beat, LEASE / 3, LEASE / 3, TimeUnit.MILLISECONDS);
        while (!stopping || owning || !hand.isEmpty()) {
            askForMore();
            events.take().happen();
        }
        Settings.log("stopped");
    }

    /** SIGTERM: no more tasks; those in hand have the grace to end. Called by another thread. */
    private void stop() {
        Link.giveUpIn(GRACE + 5000);
        tell(() -> stopping = true);
        clock.schedule(() -> tell(this::graceIsOver), GRACE, TimeUnit.MILLISECONDS);
        // The call that sleeps, now or just after this: it is granted nothing then, or the grant was committed before
        // and is performed.
        clock.scheduleWithFixedDelay(waiter::cancelSleep, 0, 200, TimeUnit.MILLISECONDS);
    }

    private void askForMore() {
        int room = most - hand.size();
        if (stopping || owning || room == 0) {
            return;
        }
        owning = true;
        Thread asking = new Thread(() -> {
            try {
                List<Task> tasks = waiter.own(actions, room);
                tell(() -> granted(tasks));
            } catch (SQLException error) {
                tell(() -> {
                    throw error;
                });
            }
        });
        asking.setDaemon(true);
        asking.start();
    }

    private void granted(List<Task> tasks) {
        owning = false;
        tasks.forEach(this::begin);
        if (late) {
            graceIsOver();
        }
    }

    private void begin(Task task) {
        Performance performance = new Performance(task, this);
        hand.add(performance);
        performance.handler.start();
    }

    private void graceIsOver() {
        late = true;
        hand.forEach(performance -> performance.handler.interrupt());
    }

    /** Asks for a heartbeat, unless the last one is still to come. Called by another thread. */
    private void beat() {
        if (!beating.getAndSet(true)) {
            tell(this::extend);
        }
    }

    /** One call for all tasks in hand. */
    private void extend() {
        beating.set(false);
        List<Performance> held = hand.stream().filter(performance -> !performance.lost).toList();
        if (held.isEmpty()) {
            return;
        }
        try {
            List<Boolean> owned = link.extend(held.stream().map(performance -> performance.task).toList());
            for (int n = 0; n < held.size(); n++) {
                if (!owned.get(n)) {
                    Settings.log(held.get(n).task.id() + ": lost");
                    held.get(n).lost = true;
                    held.get(n).handler.interrupt();
                }
            }
        } catch (SQLException error) {
            Settings.log("no heartbeat: " + error.getMessage());
        }
    }

    private void ended(Performance performance, Outcome outcome) throws SQLException {
        performance.outcome = outcome;
        if (events.peek() != null) {
            // What ended at the same time goes back with the same call, which is the last event's to make.
            tell(this::giveBack);
        } else {
            giveBack();
        }
    }

    /** Whatever has ended goes back with one call, which brings others in its place. */
    private void giveBack() throws SQLException {
        List<Performance> ended = hand.stream().filter(performance -> performance.outcome != null).toList();
        List<Outcome> returns = ended.stream().filter(p -> !p.lost).map(p -> p.outcome).toList();
        hand.removeAll(ended);
        if (!returns.isEmpty()) {
            link.give(returns, actions, stopping ? 0 : returns.size()).forEach(this::begin);
        }
    }

    public static void main(String[] arguments) {
        List<String> actions = List.copyOf(arguments.length > 0 ? List.of(arguments[0].split(",")) : HANDLERS.keySet());
        for (String action : actions) {
            if (!HANDLERS.containsKey(action)) {
                Settings.log("unknown action " + action + ": there are handlers for " + String.join(", ", HANDLERS.keySet()));
                System.exit(2);
            }
        }
        Worker worker = new Worker(actions, arguments.length > 1 ? Integer.parseInt(arguments[1]) : 10);
        CompletableFuture<Integer> code = new CompletableFuture<>();
        // SIGTERM and SIGINT begin the end of the JVM, which takes as long as this thread does.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            worker.stop();
            Runtime.getRuntime().halt(code.join());
        }));
        try {
            worker.run();
            code.complete(0);
        } catch (SQLException | InterruptedException | RuntimeException error) {
            error.printStackTrace();
            code.complete(1);
        }
        System.exit(code.join());
    }
}
