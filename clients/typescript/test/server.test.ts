import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import pg from "pg";
import { App } from "taskq-pg";
import { gate, pause, until, WorkerProcess } from "./support.js";

const run = promisify(execFile);
const { TASKQ_CLUSTER: script, PG_CONFIG: pgConfig } = process.env;
const skip = script && pgConfig ? false : "TASKQ_CLUSTER and PG_CONFIG are not set";

/** A server of the test's own. */
class Server {
  constructor(readonly folder: string) {}

  async do(command: string, ...rest: string[]): Promise<string> {
    return (await run(script as string, [command, this.folder, ...rest])).stdout;
  }

  async socket(): Promise<string> {
    const environment = await this.do("env");
    return /PGHOST=(\S+)/.exec(environment)?.[1] as string;
  }

  async query(text: string): Promise<any[]> {
    const client = new pg.Client({ host: await this.socket(), user: "postgres", database: "postgres" });
    await client.connect();
    try {
      return (await client.query(text)).rows;
    } finally {
      await client.end();
    }
  }
}

describe("the server goes away", { skip }, () => {
  let folder: string;
  let server: Server;
  let standby: Server;
  /** Where clients connect. It leads to one server or another, as a name in DNS does. */
  let proxy: net.Server;
  let target: string;
  let connectionString: string;
  const sockets = new Set<net.Socket>();

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "taskq-ts-"));
    server = new Server(join(folder, "primary"));
    standby = new Server(join(folder, "standby"));
    await server.do("start", "-c", "fsync=off", "-c", "wal_level=replica", "-c", "max_wal_senders=4");
    await server.query("CREATE EXTENSION taskq");
    target = await server.socket();
    proxy = net.createServer((client) => {
      const upstream = net.connect(join(target, ".s.PGSQL.5432"));
      for (const [socket, other] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        sockets.add(socket);
        socket.on("error", () => {}).on("close", () => other.destroy());
        socket.pipe(other);
      }
    });
    await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
    connectionString = `postgresql://postgres@127.0.0.1:${(proxy.address() as net.AddressInfo).port}/postgres`;
  });
  after(async () => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
    await Promise.all([server.do("stop"), standby.do("stop").catch(() => {})]);
    await rm(folder, { recursive: true, force: true });
  });

  const silent = { info() {}, warn() {}, error() {} };

  for (const how of ["restart", "stop-now"]) {
    test(`${how}: handlers go on, their results arrive, and the worker goes on`, async () => {
      const app = new App({ connectionString, logger: silent });
      const go = gate();
      app.task("slow", { lease: "1 minute" }, () => go.promise.then(() => "kept"));
      app.task("quick", () => "quick");
      const slow = await app.insert("slow");
      const working = app.work();
      await until(
        async () =>
          (await server.query(`SELECT FROM taskq.tasks WHERE id = '${slow}' AND state = 'in-progress'`))
            .length === 1,
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
        (
          await server.query(
            `SELECT result, num_tries FROM taskq.tasks WHERE id = '${id}' AND state = 'completed'`,
          )
        )[0];
      await until(async () => (await ended(slow)) !== undefined, "the result");
      assert.deepEqual(await ended(slow), { result: "kept", num_tries: 1 });
      // Not through the app: its own connection may not have noticed yet, and an insertion is not repeated.
      const [{ id }] = await server.query("SELECT taskq.insert_task(NULL, 'quick') AS id");
      await until(async () => (await ended(id)) !== undefined, "another task");
      await app.close();
      await working;
    });
  }

  test("failover: the worker waits until the standby is promoted, and returns there what it had in hand", async () => {
    const socket = await server.socket();
    const pgBin = (await run(pgConfig as string, ["--bindir"])).stdout.trim();
    const data = join(standby.folder, "data");
    const backup = [
      join(pgBin, "pg_basebackup"),
      "-h",
      socket,
      "-U",
      "postgres",
      "-D",
      data,
      "-R",
      "-X",
      "stream",
      "-c",
      "fast",
    ];
    await run("mkdir", ["-p", standby.folder]);
    if (process.getuid?.() === 0) {
      // The server refuses to run as root, and the backup belongs to the server's user.
      await run("chmod", ["755", folder]);
      await run("chown", ["postgres", standby.folder]);
      await run("su", ["postgres", "-c", backup.join(" ")]);
    } else {
      await run(backup[0] as string, backup.slice(1));
    }
    await standby.do("start", "-c", "fsync=off");
    const app = new App({ connectionString, logger: silent });
    const go = gate();
    app.task("over", () => go.promise.then(() => "kept"));
    const id = await app.insert("over");
    const working = app.work();
    await until(
      async () =>
        (await server.query(`SELECT FROM taskq.tasks WHERE id = '${id}' AND state = 'in-progress'`))
          .length === 1,
      "the claim",
    );
    await until(
      async () =>
        (await standby.query(`SELECT FROM taskq.tasks WHERE id = '${id}' AND state = 'in-progress'`))
          .length === 1,
      "the standby to have it",
    );
    await server.do("kill");
    target = await standby.socket();
    go.open();
    await pause(500); // it meets a server that is read-only (25006)
    await standby.query("SELECT pg_promote()");
    await until(
      async () =>
        (await standby.query(`SELECT FROM taskq.tasks WHERE id = '${id}' AND result = '"kept"'`)).length ===
        1,
      "the result",
    );
    await standby.query("SELECT taskq.insert_task('after it', 'over')");
    await until(
      async () =>
        (await standby.query("SELECT FROM taskq.tasks WHERE id = 'after it' AND state = 'completed'"))
          .length === 1,
      "another task",
    );
    await app.close();
    await working;
  });

  test("a worker that is stopped while there is no server ends with 0", async () => {
    await standby.do("stop");
    const worker = new WorkerProcess("worker", { DATABASE_URL: connectionString });
    await worker.says("no answer");
    worker.kill("SIGTERM");
    assert.deepEqual(await worker.exited, { code: 0, signal: null });
    assert.match(worker.output, /stopped without an answer of the server/);
  });
});
