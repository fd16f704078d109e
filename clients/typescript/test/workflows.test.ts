import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Id } from "taskq-pg";
import { type App, Reject, Retry } from "taskq-pg";
import { Database, gate, until } from "./support.js";

describe("workflows", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
    await database.client.query("CREATE TABLE effects (workflow text, step int)");
  });
  after(() => database.drop());

  const work = (app: App) => app.work({ untilIdle: true });

  const steps = async (id: string) =>
    (await database.rows("SELECT step FROM taskq.steps WHERE task_id = $1 ORDER BY position", id)).map(
      ({ step }) => step,
    );

  test("a step that was saved is not run again, and its result is the same", async () => {
    const app = database.app();
    const run: string[] = [];
    const seen: unknown[] = [];
    app.workflow("steps", async (ctx, body: { card: string }) => {
      const pay = await ctx.step("pay", () => {
        run.push("pay");
        return { card: body.card, at: new Date(0) };
      });
      seen.push(pay);
      const nothing = await ctx.step("nothing", () => void run.push("nothing"));
      seen.push(nothing);
      await ctx.step("ship", () => {
        run.push("ship");
        if (ctx.task.numTries === 1) throw new Retry("no truck", { after: "0 milliseconds" });
      });
      return pay;
    });
    const { id } = await app.insert("steps", { card: "4711" });
    await work(app);
    assert.deepEqual(run, ["pay", "nothing", "ship", "ship"]);
    // As JSON has it, the first time, too: code never sees one thing now and another after a restart.
    const pay = { card: "4711", at: "1970-01-01T00:00:00.000Z" };
    assert.deepEqual(seen, [pay, null, pay, null]);
    assert.deepEqual((await database.task(id)).result, pay);
    assert.deepEqual(await steps(id), ["pay", "nothing", "ship"]);
  });

  test("an error of a step gives the task back, a rejection aborts it", async () => {
    const app = database.app();
    app.workflow("errors", (ctx, kind: string) =>
      ctx.step("fails", () => {
        throw kind === "reject" ? new Reject("never") : new TypeError("not now");
      }),
    );
    const [retry, reject] = await app.insertMany("errors", ["retry", "reject"]);
    await work(app);
    const ends = await Promise.all([database.task(retry as Id), database.task(reject as Id)]);
    assert.deepEqual(
      ends.map(({ state, status }) => [state, status]),
      [
        ["scheduled", "TypeError: not now"],
        ["aborted", "never"],
      ],
    );
  });

  test("a step and the rows of its transaction are one", async () => {
    const app = database.app();
    app.workflow("rows", async (ctx) => {
      const saved = await ctx.transaction("write", async (client) => {
        await client.query("INSERT INTO effects VALUES ($1, 1)", [ctx.id]);
        return 7;
      });
      await ctx
        .transaction("fails", async (client) => {
          await client.query("INSERT INTO effects VALUES ($1, 2)", [ctx.id]);
          throw new Error("changed my mind");
        })
        .catch(() => {});
      if (ctx.task.numTries === 1) throw new Retry("again", { after: "0 milliseconds" });
      return saved;
    });
    const { id } = await app.insert("rows");
    await work(app);
    assert.equal((await database.task(id)).result, 7);
    assert.deepEqual(await database.rows("SELECT step FROM effects WHERE workflow = $1", id), [{ step: 1 }]);
  });

  test("a name is used once in a run, unless it says otherwise", async () => {
    const app = database.app();
    app.workflow("names", async (ctx) => {
      for (let n = 0; n < 3; n++) await ctx.step("loop", () => n, { unique: false });
      await ctx.step("same", () => 1);
      await ctx.step("same", () => 2);
    });
    const { id } = await app.insert("names", null, { maxTries: 1 });
    await work(app);
    assert.deepEqual(await steps(id), ["loop", "loop#2", "loop#3", "same"]);
    assert.match((await database.task(id)).status, /step "same" is used twice/);
  });

  test("a workflow that is cancelled does no further step", async () => {
    const app = database.app();
    const go = gate();
    let second = false;
    app.workflow("cancelled", { lease: "600 milliseconds" }, async (ctx) => {
      await ctx.step("first", () => go.promise);
      await ctx.step("second", () => {
        second = true;
      });
    });
    const { id } = await app.insert("cancelled");
    const working = app.work();
    await database.until(id, "in-progress");
    await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", id);
    await until(() => app.lines.some((line) => line.includes("lost")), "the heartbeat to tell");
    go.open();
    await app.stop();
    await working;
    assert.equal(second, false);
    assert.deepEqual(await steps(id), []);
  });

  test("a role that is a worker and no more can run workflows", async () => {
    await database.rows("CREATE ROLE taskq_ts_worker LOGIN").catch(() => {}); // roles are the server's, not the database's
    await database.rows("SELECT taskq.grant_worker('taskq_ts_worker')");
    const app = database.app({
      connectionString: undefined,
      database: database.name,
      user: "taskq_ts_worker",
    });
    app.task("part of it", (n: number) => n);
    app.workflow("by a worker", async (ctx) => {
      const step = await ctx.step("step", () => 1);
      const row = await ctx.transaction("row", () => 2);
      const child = await ctx.call<number>("child", "part of it", 3);
      await ctx.sleep("sleep", "10 milliseconds");
      const signal = await ctx.waitFor<number>("go", { signal: "by a worker", timeout: "1 hour" });
      return [step, row, child, signal];
    });
    const { id } = await app.insert("by a worker");
    await app.signal("by a worker", 4);
    const working = app.work();
    assert.deepEqual((await database.until(id, "completed")).result, [1, 2, 3, 4]);
    await app.stop();
    await working;
  });
});
