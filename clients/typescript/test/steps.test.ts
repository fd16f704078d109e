import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Id } from "taskq-pg";
import { Aborted, TimedOut } from "taskq-pg";
import { travel } from "taskq-pg/testing";
import { Database, pause } from "./support.js";

describe("steps", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("names that are made of other names are used once, too", async () => {
    const app = database.app();
    app.workflow("numbered", async (ctx) => {
      for (let n = 0; n < 2; n++) await ctx.step("a", () => n, { unique: false });
      return ctx.step("a#2", () => "the third");
    });
    app.workflow("until", async (ctx) => {
      await ctx.step("nap:until", () => "mine");
      await ctx.sleep("nap", "1 second");
    });
    app.workflow("children", async (ctx) => {
      await ctx.step("all:tasks", () => ["mine"]);
      await ctx.map("all", "none", [1]);
    });
    for (const [action, name] of [
      ["numbered", "a#2"],
      ["until", "nap:until"],
      ["children", "all:tasks"],
    ] as const) {
      const { id } = await app.insert(action, null, { maxTries: 1 });
      await app.work({ untilIdle: true });
      const { state, status } = await database.task(id);
      assert.equal(state, "aborted");
      assert.ok(status.includes(`step "${name}" is used twice`), status);
    }
  });

  test("a signal that came before counts, also when there is no time to wait for it", async () => {
    const app = database.app();
    app.workflow("no time", async (ctx, id: string) => {
      try {
        return await ctx.waitFor("go", { signal: id, timeout: "0 milliseconds" });
      } catch (error) {
        return error instanceof TimedOut ? "timed out" : error instanceof Aborted ? "aborted" : String(error);
      }
    });
    await app.signal("came", "came");
    await app.insert("none", null, { id: "withdrawn", signal: true });
    await database.rows("SELECT taskq.cancel_tasks('{withdrawn}')");
    const ids = await app.insertMany("no time", ["came", "never came", "withdrawn"]);
    await app.work({ untilIdle: true });
    const results = await Promise.all(ids.map(async (id) => (await database.task(id)).result));
    assert.deepEqual(results, ["came", "timed out", "aborted"]);
  });

  test("children are begun, also when there is no time to wait for them", async () => {
    const app = database.app();
    let runs = 0;
    app.task("begun", () => ++runs);
    app.workflow("no patience", (ctx) =>
      ctx.call("one", "begun", null, { timeout: "0 milliseconds" }).catch((error) => error.name),
    );
    const { id } = await app.insert("no patience");
    await app.work({ untilIdle: true });
    assert.equal((await database.task(id)).result, "TimedOut");
    assert.equal(runs, 1);
  });

  test("children that ended in time count, also when the workflow has not waited for them", async () => {
    const own = await Database.make();
    const app = own.app();
    let entered = 0;
    app.task("double", (n: number) => 2 * n);
    app.workflow("interrupted", async (ctx) => {
      const dies = ++entered === 1;
      const [doubled] = await Promise.all([
        ctx.map("all", "double", [1, 2], { timeout: "1 hour" }),
        ctx.step("beside", () => dies && pause(300).then(() => Promise.reject(new Error("dies")))),
      ]);
      return doubled;
    });
    const { id } = await app.insert("interrupted");
    await app.work({ untilIdle: true, actions: ["interrupted"] });
    await app.work({ untilIdle: true, actions: ["double"] });
    await travel(app, "2 hours");
    await app.work({ untilIdle: true });
    assert.deepEqual((await own.task(id)).result, [2, 4]);
    await own.drop();
  });

  test("a wait within a step is an error that says so", async () => {
    const app = database.app();
    app.task("child", () => 1);
    app.workflow("call", (ctx) => ctx.step("outer", () => ctx.call("inner", "child")));
    app.workflow("sleep", (ctx) => ctx.step("outer", () => pause(1).then(() => ctx.sleep("inner", "10 milliseconds"))));
    app.workflow("signal", (ctx) => ctx.transaction("outer", () => ctx.waitFor("inner", { signal: "s" })));
    app.workflow("step", (ctx) => ctx.step("outer", () => ctx.step("inner", () => "fine")));
    for (const action of ["call", "sleep", "signal"]) {
      const { id } = await app.insert(action);
      const working = app.work();
      const { status } = await database.until(id, "scheduled");
      assert.match(status, /^Error: "inner" waits within step "outer"/);
      await app.stop();
      await working;
    }
    const { id } = await app.insert("step");
    await app.work({ untilIdle: true });
    assert.equal((await database.task(id)).result, "fine");
  });

  test("a transaction within a transaction is an error that says so", async () => {
    const app = database.app();
    app.workflow("twice", (ctx) =>
      ctx.transaction("outer", () => ctx.step("between", () => ctx.transaction("inner", () => 1))),
    );
    app.workflow("once", (ctx) => ctx.step("outer", () => ctx.transaction("inner", () => "fine")));
    const ids = [await app.insert("twice", null, { maxTries: 1 }), await app.insert("once")];
    const working = app.work({ concurrency: 1 });
    const { status } = await database.until(ids[0] as Id, "aborted");
    assert.match(status, /^Error: transaction "inner" is within transaction "outer"/);
    assert.equal((await database.until(ids[1] as Id, "completed")).result, "fine");
    await app.stop();
    await working;
  });

  test("a wait for what the role may not look at is an error, however long it is", async () => {
    await database.rows("CREATE ROLE taskq_ts_narrow LOGIN").catch(() => {}); // roles are the server's
    await database.rows("SELECT taskq.grant_worker('taskq_ts_narrow', actions => '{narrow}')");
    const app = database.app({
      connectionString: undefined,
      database: database.name,
      user: "taskq_ts_narrow",
    });
    app.workflow("narrow", (ctx, timeout: string) => ctx.waitFor("go", { signal: "given", timeout }));
    await database.rows("SELECT taskq.signal('given', '7')");
    const ids = await app.insertMany("narrow", ["0 seconds", "1 minute"]);
    await app.work({ untilIdle: true });
    for (const id of ids) {
      const { state, status } = await database.task(id);
      assert.equal(state, "scheduled");
      assert.match(status, /permission denied/);
    }
  });

  test("a result that no jsonb holds aborts the workflow, and its step does not run again", async () => {
    const app = database.app();
    const runs: string[] = [];
    app.workflow("unstorable", async (ctx, kind: "step" | "transaction") => {
      await ctx[kind]("zero", () => {
        runs.push(kind);
        return "a\0b";
      });
    });
    const options = { backoff: { kind: "fixed", initial: "0 milliseconds" } } as const;
    const ids = await app.insertMany("unstorable", ["step", "transaction"], options);
    await app.work({ untilIdle: true });
    assert.deepEqual(runs.sort(), ["step", "transaction"]);
    for (const id of ids) {
      const { state, status } = await database.task(id);
      assert.equal(state, "aborted");
      assert.match(status, /result of step "zero" cannot be stored/);
    }
  });
});
