import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import type { App, WorkOptions } from "taskq-pg";
import { between, errorMessage, pipe, READY } from "./between.js";
import { Database, gate, pause, until } from "./support.js";

// Another transaction has locked one of the tasks in hand, and stays open.
describe("a task that is locked", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  /** Cancels tasks in a transaction that is rolled back in the end. */
  const locked = async (ids: string[], work: () => Promise<void>) => {
    const client = new pg.Client(database.connectionString);
    await client.connect();
    try {
      await client.query("BEGIN");
      await client.query("SELECT taskq.cancel_tasks($1)", [ids]);
      await work();
      await client.query("ROLLBACK");
    } finally {
      await client.end();
    }
  };
  const begun = async (app: App, action: string, ids: string[], options: WorkOptions = {}) => {
    for (const id of ids) await app.insert(action, null, { id });
    app.work({ concurrency: ids.length, ...options });
    for (const id of ids) await database.until(id, "in-progress");
  };

  test("costs no other its heartbeat", async () => {
    const app = database.app();
    const thief = database.app();
    const go = gate();
    const stolen: string[] = [];
    app.task("beaten", { lease: "2 seconds" }, () => go.promise);
    thief.task("beaten", { lease: "2 seconds" }, (_, task) => void stolen.push(task.id));
    await begun(app, "beaten", ["x", "y", "z"]);
    thief.work();
    await locked(["x"], () => pause(6000));
    go.open();
    for (const id of ["x", "y", "z"]) await database.until(id, "completed");
    await Promise.all([app.stop(), thief.stop()]);
    assert.deepEqual(
      stolen.filter((id) => id !== "x"),
      [],
    );
  });

  test("costs no other its heartbeat either when a report waits for it", async () => {
    const app = database.app();
    const thief = database.app();
    const report = gate();
    const go = gate();
    const stolen: string[] = [];
    const others = Array.from({ length: 8 }, (_, n) => `beside ${n}`);
    app.task("reports", { lease: "2 seconds" }, async (_, task) => {
      if (task.id === "reporting") await report.promise.then(() => task.report({ status: "half" }));
      await go.promise;
    });
    thief.task("reports", { lease: "2 seconds" }, (_, task) => void stolen.push(task.id));
    await begun(app, "reports", ["reporting", ...others]);
    thief.work();
    await locked(["reporting"], async () => {
      report.open();
      await pause(6000);
    });
    go.open();
    for (const id of ["reporting", ...others]) await database.until(id, "completed");
    await Promise.all([app.stop(), thief.stop()]);
    assert.deepEqual(
      stolen.filter((id) => id !== "reporting"),
      [],
    );
  });

  test("holds up no other return, and its own is made when it is free", async () => {
    const app = database.app();
    const go = gate();
    app.task("returned", { lease: "12 seconds" }, () => go.promise.then(() => "done"));
    await begun(app, "returned", ["r1", "r2", "r3"]);
    await locked(["r1"], async () => {
      go.open();
      await database.until("r2", "completed");
      await database.until("r3", "completed");
      const { id: next } = await app.insert("returned");
      await database.until(next, "completed");
    });
    const { result, num_tries } = await database.until("r1", "completed");
    assert.deepEqual([result, num_tries], ["done", 1]);
    await app.stop();
  });

  test("holds up no other return, also if there are many", async () => {
    const app = database.app();
    const thief = database.app();
    const go = gate();
    const stolen: string[] = [];
    const ids = Array.from({ length: 12 }, (_, n) => `m${10 + n}`);
    const [free, held] = [ids.slice(10), ids.slice(0, 10)];
    app.task("many", { lease: "3 seconds" }, () => go.promise.then(() => "done"));
    thief.task("many", { lease: "3 seconds" }, (_, task) => void stolen.push(task.id));
    await begun(app, "many", ids);
    thief.work();
    await locked(held, async () => {
      go.open();
      for (const id of free) await database.until(id, "completed");
    });
    for (const id of ids) assert.equal((await database.until(id, "completed")).result, "done");
    await Promise.all([app.stop(), thief.stop()]);
    assert.deepEqual(stolen, []);
  });

  test("holds up no other when the worker stops, also if there are many", async () => {
    const app = database.app();
    const ids = Array.from({ length: 15 }, (_, n) => `s${10 + n}`);
    app.task("stopped", () => new Promise(() => {}));
    await begun(app, "stopped", ids, { grace: "100 milliseconds" });
    await locked(ids.slice(0, 12), async () => {
      await app.stop();
      for (const id of ids.slice(12)) {
        const { state, num_tries } = await database.task(id);
        assert.deepEqual([id, state, num_tries], [id, "ready", 0]);
      }
    });
    await database.rows("SELECT taskq.cancel_tasks($1)", ids);
  });

  test("leaves its slot to another", async () => {
    const app = database.app();
    const go = gate();
    app.task("only", { lease: "3 seconds" }, () => go.promise);
    await begun(app, "only", ["o1"]);
    await locked(["o1"], async () => {
      go.open();
      await database.until(await app.insert("only"), "completed");
    });
    await database.until("o1", "completed");
    await app.stop();
  });

  test("for longer than a statement may take is returned when it is free", async () => {
    const app = database.app({ statement_timeout: 500 });
    const go = gate();
    app.task("short", { lease: "1 minute" }, () => go.promise.then(() => "done"));
    await begun(app, "short", ["t1", "t2"]);
    await locked(["t1"], async () => {
      go.open();
      await database.until("t2", "completed");
      await pause(5000);
    });
    const { result, num_tries } = await database.until("t1", "completed");
    assert.deepEqual([result, num_tries], ["done", 1]);
    await app.stop();
  });

  test("or whose return always takes too long is left to its lease, and the worker goes on", async () => {
    const tooLong = Buffer.concat([errorMessage("ERROR", "57014", "statement timeout"), READY]);
    const way = await between(database, (socket) =>
      pipe(socket, (data) => {
        if (!data.includes("taskq return") && !data.includes("return_and_own")) return undefined;
        if (!data.includes('"l1"')) return undefined;
        socket.write(tooLong);
        return false;
      }),
    );
    const app = database.app({ connectionString: way.connectionString });
    const go = gate();
    app.task("left", { lease: "1 minute" }, () => go.promise);
    await begun(app, "left", ["l1", "l2"]);
    go.open();
    await database.until("l2", "completed");
    await until(() => app.lines.some((line) => line.startsWith("l1: not returned")), "it to be given up");
    await database.until(await app.insert("left"), "completed");
    assert.equal((await database.task("l1")).state, "in-progress");
    await app.stop();
    way.close();
    await database.rows("SELECT taskq.release_tasks('{l1}')");
  });
});
