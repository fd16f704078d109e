import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { Lost } from "taskq-pg";
import { Database, gate, pause, until } from "./support.js";

describe("leases", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("a slow handler keeps its task for many times its lease", async () => {
    const app = database.app();
    app.task("slow", { lease: "1 second" }, () => pause(4000));
    const { id } = await app.insert("slow");
    const other = database.app();
    other.task("slow", { lease: "1 second" }, () => assert.fail("it is held"));
    const working = [
      app.work(),
      until(async () => (await database.task(id)).state === "in-progress", "the claim").then(() => other.work()),
    ];
    await database.until(id, "completed");
    assert.equal((await database.task(id)).num_tries, 1);
    await Promise.all([app.stop(), other.stop()]);
    await Promise.all(working);
  });

  test("a task that is cancelled is lost: its handler is told, and its result dropped", async () => {
    const app = database.app();
    const told = gate<unknown>();
    app.task("cancelled", { lease: "600 milliseconds" }, async (_, task) => {
      await new Promise<void>((resolve) => task.signal.addEventListener("abort", () => resolve()));
      told.open(task.signal.reason);
      assert.equal(task.lost, true);
      return "too late";
    });
    const { id } = await app.insert("cancelled");
    const working = app.work();
    await database.until(id, "in-progress");
    await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1], 'not wanted')", id);
    assert.ok((await told.promise) instanceof Lost);
    await app.stop();
    await working;
    const { state, status, result } = await database.task(id);
    assert.deepEqual([state, status, result], ["aborted", "not wanted", null]);
    assert.ok(app.lines.some((line) => line.includes("lost")));
  });

  test("a task that was taken over meanwhile is dropped, and the worker goes on", async () => {
    const app = database.app();
    const go = gate();
    app.task("taken", async () => {
      await go.promise;
      return "of the first";
    });
    const { id } = await app.insert("taken");
    const working = app.work({ concurrency: 1 });
    await database.until(id, "in-progress");
    await database.rows("SELECT taskq.release_tasks(ARRAY[$1])", id);
    const [{ token }] = await database.rows("SELECT token FROM taskq.own_tasks('thief', 1, '{taken}', '1 hour')");
    await until(() => app.lines.some((line) => line.includes("lost, it was cancelled or taken over")), "the loss");
    go.open();
    await database.rows("SELECT taskq.return_task($1, $2, result => '\"of the second\"')", id, token);
    const { id: next } = await app.insert("taken");
    assert.equal((await app.wait(next))?.result, "of the first");
    assert.equal((await database.task(id)).result, "of the second");
    await app.stop();
    await working;
  });

  test("each action has its own lease, and gets it before its handler begins", async () => {
    const app = database.app();
    const lasts: Record<string, number> = {};
    const look = async (_: unknown, task: { id: string; action: string }) => {
      const [row] = await database.rows(
        "SELECT extract(epoch FROM action_deadline - now())::float8 AS lasts FROM taskq.tasks WHERE id = $1",
        task.id,
      );
      lasts[task.action] = row.lasts;
    };
    app.task("short", { lease: "20 seconds" }, look);
    app.task("long", { lease: "1 hour" }, look);
    await app.insertMany("short", [1]);
    await app.insertMany("long", [1]);
    await app.work({ untilIdle: true });
    assert.ok((lasts.short as number) <= 20 && (lasts.short as number) > 0, `short: ${lasts.short}`);
    assert.ok((lasts.long as number) > 3000, `long: ${lasts.long}`);
  });

  test("a return that waits for a transaction of others costs neither its task nor others the lease", async () => {
    const app = database.app();
    const go = gate();
    app.task("returned", { lease: "2 seconds" }, () => "done");
    app.task("beaten", { lease: "2 seconds" }, () => go.promise);
    const client = new pg.Client(database.connectionString);
    await client.connect();
    // A transaction that has inserted a dependent, and is open, holds up the return of the task, and not its heartbeat.
    await app.insert("returned", null, { id: "returned" });
    await client.query("BEGIN");
    await client.query("SELECT taskq.insert_task('dependent', 'none', depends_on => '{returned}')");
    const { id: beaten } = await app.insert("beaten");
    const thief = database.app();
    for (const action of ["returned", "beaten"])
      thief.task(action, { lease: "2 seconds" }, () => assert.fail("it is held"));
    const working = [app.work({ concurrency: 2 })];
    await database.until(beaten, "in-progress");
    working.push(thief.work());
    await pause(6000);
    assert.equal((await database.task("returned")).state, "in-progress", "its return waits");
    await client.query("COMMIT");
    await client.end();
    go.open();
    for (const id of [beaten, "returned"]) assert.equal((await database.until(id, "completed")).num_tries, 1, id);
    await Promise.all([app.stop(), thief.stop()]);
    await Promise.all(working);
  });

  test("insertions that wait for a transaction of others cost no task its lease", async () => {
    const app = database.app();
    const thief = database.app();
    const go = gate();
    app.task("kept", { lease: "2 seconds" }, () => go.promise);
    thief.task("kept", { lease: "2 seconds" }, () => assert.fail("it is held"));
    const { id: kept } = await app.insert("kept");
    const working = [app.work()];
    await database.until(kept, "in-progress");
    working.push(thief.work());
    const client = new pg.Client(database.connectionString);
    await client.connect();
    await client.query("BEGIN");
    await client.query("SELECT taskq.insert_task('i1', 'none'), taskq.insert_task('i2', 'none')");
    const inserting = ["i1", "i2"].map((id) => app.insert("none", null, { id, onConflict: "skip" }));
    await pause(6000);
    await client.query("ROLLBACK");
    await client.end();
    assert.deepEqual((await Promise.all(inserting)).map(String), ["i1", "i2"]);
    go.open();
    assert.equal((await database.until(kept, "completed")).num_tries, 1);
    await Promise.all([app.stop(), thief.stop()]);
    await Promise.all(working);
  });

  test("a return that waits for the handler's own transaction does not hold up what the handler waits for", async () => {
    // Without a time-out that would end such a deadlock in the end.
    const app = database.app({ query_timeout: 0 });
    const go = gate();
    app.task("held", () => go.promise);
    app.task("linking", async (id: string) => {
      const client = new pg.Client(database.connectionString);
      await client.connect();
      await client.query("BEGIN");
      await app.insert("never", null, { dependsOn: [id], client });
      go.open();
      // The return of the other task waits for this transaction by now, and is before this call.
      await until(
        async () =>
          (
            await database.rows(
              "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
            )
          ).length > 0,
        "the return to wait",
      );
      await app.insert("never");
      await client.query("COMMIT");
      await client.end();
    });
    const { id: held } = await app.insert("held");
    const { id: linking } = await app.insert("linking", held);
    const working = app.work();
    await database.until(linking, "completed");
    await database.until(held, "completed");
    await app.stop();
    await working;
  });
});
