import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { AlreadyExists, Complete, Cycle, Leave, Malformed, NotFound, type Task, WrongState } from "taskq-pg";
import { Database, gate, until } from "./support.js";

describe("what is put around handlers", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("hooks at start and end, and around each performance", async () => {
    const app = database.app();
    const said: string[] = [];
    app.onStart(async () => void said.push("start"));
    app.onStop(() => void said.push("stop"));
    app.around(async (task, perform) => {
      said.push(`outer ${task.action}`);
      const result = await perform();
      said.push(`${result}`);
      return result;
    });
    app.around(async (_, perform) => `around ${await perform()}`);
    app.around((task, perform) => (task.action === "never" ? "instead" : perform()));
    app.task("plain", () => "done");
    app.task("never", () => assert.fail("it is not performed"));
    app.workflow("flow", async (ctx) => `saved ${await ctx.step("s", () => 1)}`);
    const tasks = [await app.insert("plain"), await app.insert("never"), await app.insert("flow")];
    await app.work({ untilIdle: true, concurrency: 1 });
    const results = await Promise.all(tasks.map(async (task) => (await database.task(task)).result));
    assert.deepEqual(results, ["around done", "around instead", "around saved 1"]);
    assert.deepEqual(said, [
      "start",
      "outer plain",
      "around done",
      "outer never",
      "around instead",
      "outer flow",
      "around saved 1",
      "stop",
    ]);
  });

  test("what is thrown around a performance fails the try, and what is thrown in it passes through", async () => {
    const app = database.app();
    app.around(async (task, perform) => {
      if (task.id === "refused") throw new Error("not now");
      return perform();
    });
    app.task("thrown", () => {
      throw new Error("inside");
    });
    for (const id of ["refused", "performed"]) await app.insert("thrown", null, { id });
    await app.work({ untilIdle: true });
    assert.equal((await database.task("refused")).status, "Error: not now");
    assert.equal((await database.task("performed")).status, "Error: inside");
    await assert.rejects(
      async () => {
        const broken = database.app();
        broken.task("any", () => {});
        broken.onStart(() => {
          throw new Error("no start");
        });
        await broken.work();
      },
      { message: "no start" },
    );
  });

  test("errors of abortOn abort, and a task that is left is returned by what has its token", async () => {
    const app = database.app();
    class Hopeless extends Error {}
    app.task("hopeless", { abortOn: [Hopeless, RangeError] }, (kind) => {
      throw kind === 1 ? new Hopeless("in vain") : kind === 2 ? new RangeError("too far") : new Error("later");
    });
    let left: Task | undefined;
    app.task("left", (_, task) => {
      left = task;
      throw new Leave();
    });
    const ids = await app.insertMany("hopeless", [1, 2, 3]);
    const leave = await app.insert("left");
    await app.work({ untilIdle: true });
    const states = await Promise.all(ids.map(async (id) => (await database.task(id)).state));
    assert.deepEqual(states, ["aborted", "aborted", "scheduled"]);
    assert.equal(await leave.state(), "in-progress");
    await database.rows("SELECT taskq.return_task($1, $2, result => '\"by another\"')", left?.id, left?.token);
    assert.equal((await leave.wait()).result, "by another");
  });

  test("a batch is one call, with a result for each task", async () => {
    const app = database.app();
    const calls: number[] = [];
    app.batch<number>("index", { size: 4, maxTries: 1 }, (tasks) => {
      calls.push(tasks.length);
      return tasks.map(({ body }) => (body === 3 ? new Error("three") : body === 5 ? new Complete(50) : body));
    });
    const ids = await app.insertMany("index", [1, 2, 3, 4, 5, 6]);
    await app.work({ untilIdle: true });
    assert.deepEqual(calls, [4, 2]);
    const rows = await Promise.all(ids.map((id) => database.task(id)));
    assert.deepEqual(
      rows.map(({ state, result, status }) => (state === "completed" ? result : status)),
      [1, 2, "Error: three", 4, 50, 6],
    );
  });

  test("a batch answers by id, or fails as a whole", async () => {
    const app = database.app();
    app.batch("by id", async (tasks) => new Map(tasks.slice(1).map(({ id, body }) => [id, body])));
    app.batch("object", (tasks) => Object.fromEntries(tasks.map(({ id }) => [id, id])));
    app.batch("nothing", () => {});
    app.batch("too few", () => [1]);
    app.batch("broken", () => {
      throw new Error("all of it");
    });
    const outcomes: Record<string, unknown[]> = {};
    for (const action of ["by id", "object", "nothing", "too few", "broken"]) {
      const ids = await app.insertMany(action, ["a", "b"]);
      await app.work({ untilIdle: true });
      const rows = await Promise.all(ids.map((id) => database.task(id)));
      outcomes[action] = rows.map(({ id, state, result, status }) =>
        state === "completed" ? (result === id ? "id" : result) : status,
      );
    }
    assert.deepEqual(outcomes, {
      "by id": ["Error: the batch has returned nothing for this task", "b"],
      object: ["id", "id"],
      nothing: [null, null],
      "too few": new Array(2).fill("TypeError: a batch of 2 returns so many results, or an object of them by id"),
      broken: ["Error: all of it", "Error: all of it"],
    });
  });

  test("a task of a batch that is lost costs the others nothing", async () => {
    const app = database.app();
    const [begun, go] = [gate(), gate()];
    app.batch("together", { maxConcurrency: 10 }, async (tasks) => {
      begun.open();
      await go.promise;
      return tasks.map(({ lost }) => (lost ? "lost" : "kept"));
    });
    const [gone, ...others] = await app.insertMany("together", [1, 2, 3]);
    const working = app.work();
    await begun.promise;
    await gone?.cancel();
    await until(() => app.lines.some((line) => line.includes("lost")), "the loss");
    go.open();
    for (const id of others) assert.equal((await database.until(id, "completed")).result, "kept");
    await app.stop();
    await working;
    assert.equal((await gone?.state()) ?? null, "aborted");
  });

  test("a workflow that returns beside a wait waits all the same, and the log names it", async () => {
    const app = database.app();
    app.workflow("hasty", async (ctx) => {
      void ctx.waitFor("approved", { signal: "approve hasty" });
      return ctx.step("beside", () => 1);
    });
    const task = await app.insert("hasty");
    await app.work({ untilIdle: true });
    assert.equal(await task.state(), "blocked");
    assert.match(app.lines.join(), /has returned beside "approved", and waits/);
    await app.signal("approve hasty", "yes");
    await app.work({ untilIdle: true });
    assert.equal((await database.task(task)).result, 1);
  });

  test("errors of the queue are known by name, whatever the driver", async () => {
    const app = database.app();
    await app.insert("x", null, { id: "twice" });
    const refused = (work: () => Promise<unknown>, kind: abstract new (...args: any[]) => Error) =>
      assert.rejects(work, (error) => error instanceof kind && error instanceof pg.DatabaseError);
    await refused(() => app.insert("x", null, { id: "twice" }), AlreadyExists);
    await refused(() => app.insert("x", null, { dependsOn: ["nowhere"] }), NotFound);
    await refused(
      () =>
        app.insertTasks([
          { id: "a", action: "x", dependsOn: ["b"] },
          { id: "b", action: "x", dependsOn: ["a"] },
        ]),
      Cycle,
    );
    await refused(() => app.insert("x", null, { maxTries: 0 }), Malformed);
    assert.ok(!(new Error("any") instanceof WrongState));
    await assert.rejects(app.wait("nowhere"), (error) => error instanceof NotFound);
    const bare = database.app({
      connectionString: database.connectionString.replace(database.name, "postgres"),
    });
    await assert.rejects(bare.insert("x"), /"taskq".*CREATE EXTENSION taskq/);
    const pool = new pg.Pool({ connectionString: database.connectionString });
    await assert.rejects(app.insert("x", null, { client: pool as never }), /a pool has no transaction/);
    await pool.end();
  });

  test("tells whether it is well", async () => {
    const app = database.app();
    app.task("any", () => {});
    assert.equal(app.healthy(), false);
    const working = app.work();
    await until(() => app.healthy(), "it to be well");
    await app.stop();
    await working;
    assert.equal(app.healthy(), false);
  });
});
