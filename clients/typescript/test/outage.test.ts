import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { between, pipe } from "./between.js";
import { Database, gate, pause, until, WorkerProcess } from "./support.js";

describe("a stop in an outage", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("returns what has ended once the server is back, and leaves no process behind", async () => {
    const sockets = new Set<{ destroy(): void }>();
    let away = false;
    const way = await between(database, (socket) => {
      if (away) return socket.destroy();
      sockets.add(socket);
      pipe(socket);
    });
    const insert = "SELECT taskq.insert_task($1, 'job', $2::jsonb)";
    await database.rows(insert, "short", { sleep: 1500, heed: false });
    await database.rows(insert, "long", { sleep: 60_000, heed: false });
    // With no place left there is no claim that pauses as well.
    const worker = new WorkerProcess("worker", {
      DATABASE_URL: way.connectionString,
      GRACE: "500 milliseconds",
      LEASE: "1 minute",
      CONCURRENCY: "2",
    });
    try {
      await worker.says("begun short");
      await worker.says("begun long");
      away = true;
      for (const socket of sockets) socket.destroy();
      await worker.says("ended short");
      // The next pause would be longer than the time that a stop leaves.
      await until(() => /again in about (3200|6400|10000) ms/.test(worker.output), "a long pause");
      worker.kill("SIGTERM");
      await worker.says("the worker stops");
      await pause(1000);
      away = false;
      assert.deepEqual(await worker.exited, { code: 0, signal: null });
      const { state, num_tries } = await database.task("long");
      assert.deepEqual([(await database.task("short")).state, state, num_tries], ["completed", "ready", 0]);
    } finally {
      worker.kill("SIGKILL");
      way.close();
    }
  });

  test("brings no warning, however many calls pause", async () => {
    const sockets = new Set<{ destroy(): void }>();
    let away = false;
    const way = await between(database, (socket) => {
      if (away) return socket.destroy();
      sockets.add(socket);
      pipe(socket);
    });
    const warnings: Error[] = [];
    const warn = (warning: Error) => void warnings.push(warning);
    process.on("warning", warn);
    const app = database.app({ connectionString: way.connectionString });
    const go = gate();
    app.task("reports", (_, task) => go.promise.then(() => task.report({ progress: 0.5 })));
    const ids = await app.insertMany("reports", new Array(20).fill(null));
    const working = app.work({ concurrency: 20 });
    for (const id of ids) await database.until(id, "in-progress");
    away = true;
    for (const socket of sockets) socket.destroy();
    go.open();
    await until(() => app.lines.filter((line) => line.includes("again in")).length > 40, "the pauses");
    away = false;
    for (const id of ids) await database.until(id, "completed");
    await app.stop();
    await working;
    process.off("warning", warn);
    way.close();
    assert.deepEqual(warnings, []);
  });
});
