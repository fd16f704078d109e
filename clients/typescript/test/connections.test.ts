import assert from "node:assert/strict";
import net from "node:net";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { Database, gate, pause, until } from "./support.js";

describe("the app's connections", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("three are a worker's, and so many besides, however many tasks step, report and are extended", async () => {
    const app = database.app({ application_name: "bounded", maxConnections: 2 });
    let left = false;
    let steps = 0;
    app.workflow("busy", { lease: "2 seconds" }, async (ctx) => {
      for (let n = 0; !left; n++) {
        await ctx.step("step", () => steps++, { unique: false });
        await ctx.task.report({ status: `after step ${n}` });
        await pause(1000);
      }
    });
    const ids = await app.insertMany("busy", new Array(50).fill(null));
    const working = app.work({ concurrency: 60 });
    for (const id of ids) await database.until(id, "in-progress");
    let few = 0;
    // Others for moments, where the machine is slow.
    await until(async () => {
      const rows = await database.rows("SELECT FROM pg_stat_activity WHERE application_name = 'bounded'");
      if (steps >= 150 && rows.length <= 5) few++;
      return few === 20;
    }, "five connections");
    left = true;
    for (const id of ids) assert.equal((await database.until(id, "completed")).num_tries, 1);
    await app.stop();
    await working;
  });

  test("calls queue for them, however many there are", async () => {
    const app = database.app({ application_name: "queue", maxConnections: 3 });
    const inserting = Array.from({ length: 500 }, (_, n) => app.insert("none", n));
    const waiting = app.insert("waited for").then((task) => task.wait({ timeout: "1 minute" }));
    let most = 0;
    let over = false;
    const looking = (async () => {
      while (!over) {
        const rows = await database.rows("SELECT FROM pg_stat_activity WHERE application_name = 'queue'");
        most = Math.max(most, rows.length);
      }
    })();
    assert.equal(new Set((await Promise.all(inserting)).map(String)).size, 500);
    const worker = database.app();
    worker.task("waited for", () => "done");
    await worker.work({ untilIdle: true });
    assert.equal((await waiting).result, "done");
    over = true;
    await looking;
    assert.equal(most, 3);
    assert.throws(() => database.app({ maxConnections: 0 }), /maxConnections is no positive integer/);
  });

  test("an insertion that is under way when the worker ends is not cut off", async () => {
    const app = database.app();
    app.task("any", () => {});
    const client = new pg.Client(database.connectionString);
    await client.connect();
    await client.query("BEGIN");
    await client.query("SELECT taskq.insert_task('slow', 'none')");
    const inserting = app.insert("none", null, { id: "slow", onConflict: "skip" });
    await app.work({ untilIdle: true });
    await client.query("ROLLBACK");
    await client.end();
    assert.equal((await inserting).id, "slow");
  });

  test("close does not wait for a transactional handler that does not end", async () => {
    const app = database.app();
    app.task("endless", { transactional: true }, () => new Promise(() => {}));
    const { id } = await app.insert("endless");
    const working = app.work({ grace: "100 milliseconds" });
    await database.until(id, "in-progress");
    await app.close();
    await working;
    const { state, num_tries } = await database.task(id);
    assert.deepEqual([state, num_tries], ["ready", 0]);
    const left = "application_name = 'taskq-pg' AND state LIKE 'idle in transaction%'";
    await until(
      async () => (await database.rows(`SELECT FROM pg_stat_activity WHERE ${left}`)).length === 0,
      "its transaction to be rolled back",
    );
    await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", id);
  });

  test("close leaves none behind for what a worker that has failed still returns", async () => {
    const app = database.app({ application_name: "failed" });
    const connections = () => database.rows("SELECT FROM pg_stat_activity WHERE application_name = 'failed'");
    const go = gate();
    app.task("slow", () => go.promise);
    const { id } = await app.insert("slow");
    const working = app.work();
    const failing = assert.rejects(working, /does not exist/);
    await database.until(id, "in-progress");
    await database.rows("ALTER FUNCTION taskq.own_tasks RENAME TO other");
    await database.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'failed'");
    await failing;
    await database.rows("ALTER FUNCTION taskq.other RENAME TO own_tasks");
    await app.close();
    go.open();
    await pause(1000);
    assert.equal((await connections()).length, 0);
    assert.equal((await database.task(id)).state, "in-progress");
    await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", id);
  });

  test("the pool is as large as the concurrency, also of a later call", async () => {
    const app = database.app();
    const all = gate();
    let running = 0;
    app.task("wide", { transactional: true }, async (many: number) => {
      if (many === 1) return;
      if (++running === many) all.open();
      await all.promise;
    });
    await app.insert("wide", 1);
    await app.work({ untilIdle: true, concurrency: 1 });
    const ids = await app.insertMany("wide", [3, 3, 3]);
    const working = app.work({ concurrency: 3 });
    for (const id of ids) await database.until(id, "completed");
    await app.stop();
    await working;
  });

  test("a server without TLS is told of, and not tried for ever", async () => {
    // The start of the protocol: the client asks for TLS, and the server says no.
    const server = net.createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => socket.write("N"));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as net.AddressInfo;
    const app = database.app({ connectionString: `postgresql://postgres@127.0.0.1:${port}/x`, ssl: true });
    app.task("any", () => {});
    await assert.rejects(app.work(), /does not support SSL/);
    server.close();
  });
});
