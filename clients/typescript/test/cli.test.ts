import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { Database, until } from "./support.js";

const run = promisify(execFile);
const CLI = "node_modules/taskq-pg/dist/cli.js";

describe("the command line", () => {
  let database: Database;
  let folder: string;
  const running: ChildProcess[] = [];
  before(async () => {
    database = await Database.make();
    // Beside node_modules, where a program finds the package.
    folder = await mkdtemp("cli-");
  });
  after(async () => {
    for (const child of running) child.kill("SIGKILL");
    await rm(folder, { recursive: true });
    await database.drop();
  });

  const taskq = async (...words: string[]) => {
    const { stdout } = await run(process.execPath, [CLI, ...words, "--conninfo", database.connectionString]);
    return stdout.trimEnd();
  };
  const program = async (name: string, source: string) => {
    const path = join(folder, name);
    await writeFile(
      path,
      `import { App } from "taskq-pg";\nexport const app = new App({ connectionString: process.env.DATABASE_URL, name: "cli" });\n${source}\n`,
    );
    return path;
  };
  const begin = (...words: string[]) => {
    const env = { ...process.env, DATABASE_URL: database.connectionString };
    const child = spawn(process.execPath, [CLI, ...words], { env, stdio: ["ignore", "pipe", "pipe"] });
    running.push(child);
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text) => {
        output += text;
      });
    return { child, exited: once(child, "exit"), output: () => output };
  };
  const freePort = async (): Promise<number> => {
    const server = net.createServer().listen(0);
    await once(server, "listening");
    const { port } = server.address() as net.AddressInfo;
    server.close();
    return port;
  };

  test("has the calls of an operator", async () => {
    const id = await taskq(
      "insert",
      "looked after",
      '{"n": 1}',
      "--key",
      "id=7",
      "--key",
      "group_id=g",
      "--key",
      "priority=3",
    );
    assert.equal(id, "7");
    const task = await database.task("7");
    assert.deepEqual([task.body, task.group_id, task.priority], ['{"n": 1}', "g", 3]);
    assert.match(await taskq("get", "7"), /state: ready/);
    assert.equal(await taskq("pause", "--action", "looked after"), "true");
    assert.match(await taskq("why", "7"), /paused/);
    assert.equal(await taskq("resume", "--action", "looked after"), "true");
    assert.equal(await taskq("pause", "--group", "g"), "1");
    assert.equal(await taskq("resume", "--group", "g"), "1");
    assert.match(await taskq("graph", "7", "--format", "mermaid"), /graph|flowchart/);
    assert.equal(await taskq("cancel", "7"), "1");
    assert.equal(await taskq("retry", "7"), "1");
    assert.equal(await taskq("cancel", "7"), "1");
    assert.equal(await taskq("rerun", "7"), "1");
    await taskq("set-action", "looked after", "--max-concurrency", "4", "--rate-limit=10", "--rate-period=1 second");
    const [settings] = await database.rows("SELECT * FROM taskq.actions WHERE action = 'looked after'");
    assert.deepEqual([settings.max_concurrency, settings.rate_limit], [4, 10]);
    await taskq("set-group", "g", "--max-concurrency", "2");
    await taskq("schedule", "nightly", "0 3 * * *", "looked after", "123", "--timezone", "Europe/Berlin");
    const [schedule] = await database.rows("SELECT * FROM taskq.schedules WHERE name = 'nightly'");
    assert.deepEqual([schedule.timezone, schedule.cron], ["Europe/Berlin", "0 3 * * *"]);
    assert.match(await taskq("run-schedule", "nightly"), /^nightly/);
    assert.equal(await taskq("pause", "--schedule", "nightly"), "true");
    await taskq("unschedule", "nightly");
    assert.equal(await taskq("signal", "given", '{"by": "ann"}'), "true");
    assert.deepEqual((await database.task("given")).result, { by: "ann" });
    await assert.rejects(taskq("signal", "given"), { code: 1 });
    assert.equal(await taskq("delete", "7"), "1");
    await assert.rejects(taskq("get", "7"), { code: 1, stderr: 'taskq: there is no task "7"\n' });
    await assert.rejects(taskq("rewind", "given", "pay"), { code: 1 });
    await assert.rejects(taskq("get"), /taskq-pg get ID/);
    await assert.rejects(taskq("cancel", "--no-such", "x"), { code: 1 });
  });

  test("works, and tells on a port whether it is well", async () => {
    const path = await program("works.mjs", 'app.task("typed", { maxTries: 3 }, (body) => body);');
    const env = { ...process.env, DATABASE_URL: database.connectionString };
    await run(process.execPath, [CLI, "setup", path, "--prune"], { env });
    const [{ max_tries }] = await database.rows("SELECT max_tries FROM taskq.actions WHERE action = 'typed'");
    assert.equal(max_tries, 3);
    const id = await taskq("insert", "typed", "hello");
    await run(process.execPath, [CLI, "work", path, "--until-idle"], { env });
    assert.equal((await database.task(id)).result, "hello");
    const port = await freePort();
    const { child, exited } = begin("work", path, "--health-port", `${port}`, "--concurrency", "2");
    const health = () =>
      fetch(`http://127.0.0.1:${port}/`).then(
        ({ status }) => status,
        () => 0,
      );
    await until(async () => (await health()) === 200, "it to be well");
    child.kill("SIGTERM");
    assert.deepEqual(await exited, [0, null]);
    await assert.rejects(run(process.execPath, [CLI, "work", CLI], { env }));
  });

  test("has several processes, of which one that dies is begun anew", async () => {
    const path = await program(
      "dies.mjs",
      'app.task("pid", () => process.pid);\napp.task("dies", () => process.exit(3));',
    );
    const { child, exited, output } = begin("work", path, "--processes", "2");
    await until(() => output().split("performs tasks").length === 3, "two workers", output);
    const dies = await taskq("insert", "dies");
    await until(() => /process \d of 2 has ended with 3, and is begun anew/.test(output()), "the death", output);
    await until(() => output().split("performs tasks").length >= 4, "another worker", output);
    await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", dies);
    const id = await taskq("insert", "pid");
    await database.until(id, "completed");
    child.kill("SIGTERM");
    assert.deepEqual(await exited, [0, null]);
  });

  test("begins anew when the code has changed", async () => {
    const path = await program("reloads.mjs", 'app.task("version", () => 1);');
    const { child, exited, output } = begin("work", path, "--reload");
    await until(() => output().includes("performs tasks"), "the worker", output);
    assert.equal((await database.until(await taskq("insert", "version"), "completed")).result, 1);
    await program("reloads.mjs", 'app.task("version", () => 2);');
    await until(() => output().split("performs tasks").length >= 3, "another worker", output);
    assert.equal((await database.until(await taskq("insert", "version"), "completed")).result, 2);
    child.kill("SIGINT");
    assert.deepEqual(await exited, [0, null]);
  });
});
