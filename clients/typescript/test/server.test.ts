import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { App } from "taskq-pg";
import { Forwarder, makeFolder, removeFolder, Server, silent, skip } from "./servers.js";
import { gate, pause, until, WorkerProcess } from "./support.js";

describe("the server goes away", { skip }, () => {
  let folder: string;
  let server: Server;
  let forwarder: Forwarder;

  before(async () => {
    folder = await makeFolder();
    server = new Server(join(folder, "server"));
    await server.start();
    await server.query("CREATE EXTENSION taskq");
    forwarder = await Forwarder.to(server);
  });
  after(async () => {
    forwarder?.close();
    await server.do("stop");
    await removeFolder(folder);
  });

  test("a worker that stops leaves no error in the server's log", async () => {
    const log = join(folder, "server", "log");
    const before = (await readFile(log, "utf8")).length;
    const worker = new WorkerProcess("worker", { DATABASE_URL: forwarder.connectionString });
    const sleeping = "query LIKE '%own_tasks%' AND state = 'active' AND pid <> pg_backend_pid()";
    await until(
      async () => (await server.query(`SELECT FROM pg_stat_activity WHERE ${sleeping}`)).length === 1,
      "the claim to sleep",
    );
    worker.kill("SIGTERM");
    assert.deepEqual(await worker.exited, { code: 0, signal: null });
    assert.doesNotMatch((await readFile(log, "utf8")).slice(before), /ERROR|FATAL|canceling/);
  });

  for (const how of ["restart", "stop-now"]) {
    test(`${how}: handlers go on, their results arrive, and the worker goes on`, async () => {
      const app = new App({ connectionString: forwarder.connectionString, logger: silent });
      const go = gate();
      app.task("slow", { lease: "1 minute" }, () => go.promise.then(() => "kept"));
      app.task("quick", () => "quick");
      const { id: slow } = await app.insert("slow");
      const working = app.work();
      await until(
        async () =>
          (await server.query(`SELECT FROM taskq.tasks WHERE id = '${slow}' AND state = 'in-progress'`)).length === 1,
        "the claim",
      );
      await server.do(how);
      if (how === "stop-now") {
        go.open(); // its return finds no server
        await pause(300);
        await server.do("start");
      }
      go.open();
      const ended = async (id: string) =>
        (await server.query(`SELECT result, num_tries FROM taskq.tasks WHERE id = '${id}' AND state = 'completed'`))[0];
      await until(async () => (await ended(slow)) !== undefined, "the result");
      assert.deepEqual(await ended(slow), { result: "kept", num_tries: 1 });
      // Not through the app: its own connection may not have noticed yet, and an insertion is not repeated.
      const [{ id }] = await server.query("SELECT taskq.insert_task(NULL, 'quick') AS id");
      await until(async () => (await ended(id)) !== undefined, "another task");
      await app.close();
      await working;
    });
  }

  test("a server that does not answer does not hold up the second signal", async () => {
    const worker = new WorkerProcess("worker", { DATABASE_URL: forwarder.connectionString });
    const sleeping = "query LIKE '%own_tasks%' AND state = 'active' AND pid <> pg_backend_pid()";
    let pid = 0;
    await until(async () => {
      const [row] = await server.query(`SELECT pid FROM pg_stat_activity WHERE ${sleeping}`);
      pid = row?.pid;
      return row !== undefined;
    }, "the claim to sleep");
    process.kill(pid, "SIGSTOP");
    try {
      worker.kill("SIGTERM");
      await worker.says("the worker stops");
      const begun = Date.now();
      worker.kill("SIGINT");
      assert.deepEqual(await worker.exited, { code: 0, signal: null });
      assert.ok(Date.now() - begun < 20_000, "it ends without an answer");
    } finally {
      process.kill(pid, "SIGCONT");
      worker.kill("SIGKILL");
    }
  });

  test("an idle worker whose server stands still ends on SIGTERM", async () => {
    const worker = new WorkerProcess("worker", { DATABASE_URL: forwarder.connectionString });
    const ours = "datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'taskq-pg'";
    await until(
      async () =>
        (await server.query(`SELECT FROM pg_stat_activity WHERE ${ours} AND query LIKE '%own_tasks%'`)).length === 1,
      "the claim to sleep",
    );
    const pids = (await server.query(`SELECT pid FROM pg_stat_activity WHERE ${ours}`)).map(({ pid }) => pid);
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    try {
      worker.kill("SIGTERM");
      assert.deepEqual(await worker.exited, { code: 0, signal: null });
    } finally {
      for (const pid of pids) process.kill(pid, "SIGCONT");
      worker.kill("SIGKILL");
    }
  });

  test("a worker that is stopped while there is no server ends with 0", async () => {
    await server.do("stop");
    const worker = new WorkerProcess("worker", { DATABASE_URL: forwarder.connectionString });
    await worker.says("no answer");
    worker.kill("SIGTERM");
    assert.deepEqual(await worker.exited, { code: 0, signal: null });
    assert.match(worker.output, /stopped without an answer of the server/);
  });
});
