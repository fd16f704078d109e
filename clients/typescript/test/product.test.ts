import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { App, Handle } from "taskq-pg";
import { createTestDatabase } from "taskq-pg/testing";
import { Database, gate, pause, until } from "./support.js";

const run = promisify(execFile);

describe("the app", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("asks for a handler that is registered while it works", async () => {
    const app = database.app();
    app.task("early", () => "early");
    const working = app.work();
    await app.insert("early").then((early) => early.wait());
    const late = app.task("late", () => "late");
    const { result } = await (await late.insert(null)).wait({ timeout: "1 minute" });
    assert.equal(result, "late");
    await app.stop();
    await working;
  });

  test("is told at once of what it loses, also after it has lost its connections", async () => {
    const app = database.app({ application_name: "told" });
    let told = gate<number>();
    let cancelled = 0;
    app.task("cancelled", async (_, task) => {
      await new Promise((resolve) => task.signal.addEventListener("abort", resolve, { once: true }));
      told.open(performance.now() - cancelled);
    });
    const working = app.work();
    for (const time of ["first", "second"]) {
      const handle = await database.app().insert("cancelled", null, { id: `${time} time` });
      await database.until(handle, "in-progress");
      // It hears once it has begun to.
      await pause(500);
      cancelled = performance.now();
      assert.equal(await handle.cancel({ status: "not wanted" }), true);
      // The heartbeat comes after a third of a minute.
      assert.ok((await told.promise) < 10_000);
      assert.equal(await handle.state(), "aborted");
      told = gate<number>();
      await database.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'told'");
    }
    await app.stop();
    await working;
  });

  test("gives handles, which are ids wherever an id is taken", async () => {
    const app = database.app();
    app.task("one", (body) => body);
    const first = await app.insert("one", "a");
    const [second] = await app.insertMany("one", ["b"], { dependsOn: [first] });
    assert.ok(second instanceof Handle);
    assert.deepEqual([`${first}`, JSON.stringify([first])], [first.id, `["${first.id}"]`]);
    assert.deepEqual([await first.state(), await second.state()], ["ready", "blocked"]);
    assert.match((await app.why(second)).join(), new RegExp(first.id));
    assert.match(await app.graph(second, { format: "mermaid" }), /graph|flowchart/);
    const working = app.work();
    assert.deepEqual((await second.wait()).result, "b");
    await app.stop();
    await working;
    assert.equal(await app.rerun(first), 2);
    assert.equal(await app.delete([first, second]), 2);
    assert.deepEqual([await app.get(first), await first.state()], [null, null]);
    assert.equal(await first.cancel(), false);
    await assert.rejects(first.wait(), { code: "TQ003" });
  });

  test("has the calls of an operator", async () => {
    const app = database.app();
    const task = await app.insert("looked after", { n: 1 }, { groupId: "g" });
    assert.equal((await app.get(task))?.state, "ready");
    assert.equal((await app.get(task))?.groupId, "g");
    assert.equal(await app.pause({ action: "looked after" }), true);
    assert.equal(await app.pause({ group: "g" }), 1);
    assert.match((await app.why(task)).join(), /paused/);
    assert.equal(await app.resume({ action: "looked after" }), true);
    assert.equal(await app.resume({ group: "g" }), 1);
    assert.equal(await app.cancel({ groups: ["g"] }, { status: "enough" }), 1);
    assert.equal((await app.get(task))?.status, "enough");
    assert.equal(await app.retry([task]), 1);
    await app.setAction("looked after", {
      rateLimit: 5,
      ratePeriod: "1 second",
      backoff: { kind: "fixed", initial: "3 seconds" },
    });
    const [settings] = await database.rows(
      "SELECT rate_limit, backoff FROM taskq.actions WHERE action = 'looked after'",
    );
    assert.deepEqual(settings, { rate_limit: 5, backoff: { kind: "fixed", initial: "3 seconds" } });
    await app.setGroup("g", { maxConcurrency: 2 });
    app.schedule("nightly", "0 3 * * *", "looked after", { n: 2 }, { backfill: "all", maxBackfill: 7 });
    await app.setup();
    assert.match(await app.runSchedule("nightly"), /^nightly/);
    assert.equal(await app.pause({ schedule: "nightly" }), true);
    assert.equal(await app.resume({ schedule: "nightly" }), true);
    await app.unschedule("nightly");
    await assert.rejects(app.unschedule("nightly"), { code: "TQ007" });
    await assert.rejects(app.setAction("x", { maxTrys: 3 } as object), /no setting: maxTrys/);
  });

  test("checks bodies when they are inserted, and tells once of an action without a handler", async () => {
    const app = database.app();
    const ship = app.task(
      "ship",
      {
        schema: (body: any): number => {
          if (typeof body !== "number") throw new Error("a number is wanted");
          return body;
        },
      },
      (n) => n,
    );
    await assert.rejects(ship.insert("one" as never), /action "ship": the body does not fit: a number is wanted/);
    await ship.insert(1);
    for (let n = 0; n < 2; n++) await app.insert("shipp", 1);
    assert.equal(app.lines.filter((line) => line.includes('action "shipp" has no handler')).length, 1);
    assert.deepEqual(await database.states("ship"), { ready: 1 });
  });

  test("waits for many tasks over one connection", async () => {
    const app = database.app({ application_name: "many" });
    app.task("many", { lease: "1 minute" }, (n: number) => n);
    const handles = await app.insertMany(
      "many",
      Array.from({ length: 300 }, (_, n) => n),
    );
    const results = Promise.all(handles.map((handle) => handle.wait({ timeout: "1 minute" })));
    await pause(200);
    const [{ count }] = await database.rows(
      "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'many'",
    );
    assert.ok(count <= 2, `${count} connections`);
    const working = app.work();
    assert.deepEqual(
      (await results).map(({ result }) => result),
      handles.map((_, n) => n),
    );
    await app.stop();
    await working;
  });

  test("shows what has failed with its stack, its causes and when it is tried again", async () => {
    const app = database.app();
    app.task("fails", () => {
      throw new TypeError("outside", {
        cause: new AggregateError([new Error("first"), new Error("second")], "inside"),
      });
    });
    const task = await app.insert("fails", null, { maxTries: 1 });
    const again = await app.insert("fails", null, {
      maxTries: 3,
      backoff: { kind: "fixed", initial: "1 hour" },
    });
    await app.work({ untilIdle: true });
    const said = (id: string) => app.lines.find((line) => line.includes(id)) ?? "";
    assert.match(said(task.id), /fails ".*": try 1 of 1 failed, and there is no other: TypeError: outside\n +at /);
    assert.match(said(task.id), /first[\s\S]*second/);
    assert.match(said(again.id), /try 1 of 3 failed, the next one is at 20\d\d-/);
    assert.match(
      (await database.task(task)).status,
      /^TypeError: outside; caused by AggregateError: inside; caused by Error: first/,
    );
  });
});

test("a program of CommonJS uses the package, and so do its types", async () => {
  await writeFile(
    "program.cjs",
    'const { App, Reject } = require("taskq-pg"); const { drain } = require("taskq-pg/testing");\nconsole.log(typeof App, new Reject("x") instanceof Error, typeof drain);\n',
  );
  assert.equal((await run(process.execPath, ["program.cjs"])).stdout, "function true function\n");
  assert.equal(typeof App, "function");
  const source =
    'import { App } from "taskq-pg";\nimport { drain } from "taskq-pg/testing";\nexport const app: App = new App();\nexport const d: typeof drain = drain;\n';
  await writeFile("old.cts", source);
  await run("npx", [
    "tsc",
    "--ignoreConfig",
    "--noEmit",
    "--module",
    "commonjs",
    "--moduleResolution",
    "bundler",
    "--skipLibCheck",
    "--types",
    "node",
    "old.cts",
  ]);
  assert.match(await readFile("node_modules/taskq-pg/package.json", "utf8"), /"main": /);
});

test("a database of a test has the URL of a socket", async () => {
  const { PGHOST, PGUSER = "postgres" } = process.env;
  const connectionString = `postgresql://${PGUSER}@/postgres?host=${PGHOST}`;
  await using database = await createTestDatabase({ connectionString });
  await using app = new App(database.connectionString);
  const task = await app.insert("any");
  await until(async () => (await task.state()) === "ready", "the task");
});
