import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Aborted, type App } from "taskq-pg";
import { drain } from "taskq-pg/testing";
import { Database, pause } from "./support.js";

describe("waits of workflows", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  const work = (app: App) => app.work({ untilIdle: true });

  test("while it waits for a signal it holds nothing, and no catch or finally block sees it", async () => {
    const app = database.app();
    const seen: string[] = [];
    app.workflow("approval", async (ctx, id: number) => {
      try {
        const answer = await ctx.waitFor("approved", { signal: `approve ${id}` });
        return { answer };
      } catch {
        seen.push("catch");
      } finally {
        seen.push("finally");
      }
    });
    const { id } = await app.insert("approval", 7, { maxTries: 1 });
    await work(app);
    const waiting = await database.task(id);
    assert.deepEqual([waiting.state, waiting.num_tries, waiting.actor_id], ["blocked", 0, null]);
    const [wait] = await database.rows("SELECT waits_for FROM taskq.waits WHERE task_id = $1", id);
    assert.deepEqual(wait.waits_for, ["approve 7"]);
    assert.deepEqual(seen, []);
    assert.equal(await app.signal("approve 7", { by: "ann" }), true);
    assert.equal(await app.signal("approve 7", { by: "bob" }), false, "the first one wins");
    await work(app);
    assert.deepEqual((await database.task(id)).result, { answer: { by: "ann" } });
    assert.deepEqual(seen, ["finally"]);
  });

  test("a signal may come before anything waits for it", async () => {
    const app = database.app();
    app.workflow("early", (ctx) => ctx.waitFor("go", { signal: "early bird", timeout: "1 day" }));
    await app.signal("early bird", [1, 2]);
    const { id } = await app.insert("early");
    await work(app);
    assert.deepEqual((await database.task(id)).result, [1, 2]);
  });

  test("a signal that was cancelled, or has expired, is an Aborted", async () => {
    const app = database.app();
    app.workflow("cancelled signal", async (ctx, id: string) => {
      const error = await ctx.waitFor("go", { signal: id }).catch((reason) => reason);
      assert.ok(error instanceof Aborted);
      return error.taskId;
    });
    const { id } = await app.insert("cancelled signal", "never mind");
    await work(app);
    await database.rows("SELECT taskq.cancel_tasks('{never mind}')");
    await work(app);
    assert.equal((await database.task(id)).result, "never mind");
  });

  test("a workflow waits for any task by its id", async () => {
    const app = database.app();
    app.workflow("waits for a task", (ctx) => ctx.waitFor("load", { tasks: ["load 1"] }));
    app.task("load", () => ({ rows: 3 }));
    await app.insert("load", null, { id: "load 1" });
    const { id } = await app.insert("waits for a task", null, { priority: 9 });
    await drain(app, { concurrency: 1 });
    assert.deepEqual((await database.task(id)).result, [{ rows: 3 }]);
  });

  test("waits that are asked for together are one suspension", async () => {
    const app = database.app();
    let entered = 0;
    app.task("part", (n: number) => n);
    app.workflow("together", async (ctx) => {
      entered++;
      return Promise.all([
        ctx.map("parts", "part", [1, 2]),
        ctx.waitFor("go", { signal: "together" }),
        ctx.step("beside", () => pause(50).then(() => "beside")),
      ]);
    });
    const { id } = await app.insert("together");
    await work(app);
    assert.deepEqual(await database.states("part"), { completed: 2 });
    await app.signal("together", "went");
    await work(app);
    assert.deepEqual((await database.task(id)).result, [[1, 2], "went", "beside"]);
    assert.equal(entered, 2);
  });

  test("what the queue refuses to wait for gives the workflow back, and says why", async () => {
    const app = database.app();
    app.workflow("refused", (ctx) => ctx.waitFor("load", { tasks: ["no such task"] }));
    const { id } = await app.insert("refused");
    await work(app);
    const task = await database.task(id);
    assert.deepEqual([task.state, /its return was refused: .*no such task/.test(task.status)], ["scheduled", true]);
  });

  test("a suspension that is refused spoils no other return of its batch", async () => {
    const app = database.app();
    app.workflow("mixed", async (ctx, n: number) => (n === 0 ? ctx.waitFor("load", { tasks: ["no such task"] }) : n));
    const ids = await app.insertMany("mixed", [1, 0, 2]);
    await work(app);
    const states = await Promise.all(ids.map(async (id) => (await database.task(id)).state));
    assert.deepEqual(states, ["completed", "scheduled", "completed"]);
  });

  test("hundreds of workflows that wait take no worker from others", async () => {
    const app = database.app();
    app.workflow("crowd", (ctx, n: number) => ctx.waitFor("go", { signal: `crowd ${n}` }));
    app.task("beside", () => "done");
    const ids = await app.insertMany(
      "crowd",
      Array.from({ length: 300 }, (_, n) => n),
    );
    const { id: beside } = await app.insert("beside", null, { priority: -1 });
    await app.work({ untilIdle: true, concurrency: 5 });
    assert.equal((await database.task(beside)).result, "done");
    assert.deepEqual(await database.states("crowd"), { blocked: 300 });
    for (const [n] of ids.entries()) await app.signal(`crowd ${n}`, n);
    await app.work({ untilIdle: true, concurrency: 5 });
    assert.deepEqual(await database.states("crowd"), { completed: 300 });
  });
});
