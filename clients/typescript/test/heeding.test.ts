import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { Reject, Retry, type Task } from "taskq-pg";
import { Database, gate, pause, until } from "./support.js";

describe("a stop, and what handlers make of it", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("a handler that heeds its signal has not completed its task", async () => {
    const app = database.app();
    app.task("loop", async (_, task) => {
      let did = 0;
      while (!task.signal.aborted) {
        await pause(20);
        did++;
      }
      return did;
    });
    app.workflow("caught", async (ctx) => {
      await ctx.step("long", () => until(async () => ctx.task.signal.aborted, "the stop"));
      try {
        return await ctx.step("next", () => "charged");
      } catch (error) {
        return { failed: String(error) };
      }
    });
    const ids = [await app.insert("loop"), await app.insert("caught")];
    const working = app.work({ grace: "100 milliseconds" });
    for (const id of ids) await database.until(id, "in-progress");
    await pause(200);
    await app.stop();
    await working;
    for (const id of ids) {
      const { state, num_tries, num_releases } = await database.task(id);
      assert.deepEqual([state, num_tries, num_releases], ["ready", 0, 1]);
    }
  });

  test("nor has one whose work is in a transaction, or in a step", async () => {
    await database.rows("CREATE TABLE copied (task text, n int)");
    const app = database.app();
    const copy = async (task: Task, put: (n: number) => unknown) => {
      for (let n = 1; n <= 3; n++) {
        if (n === 2 && task.numTries === 1 && stopping) await until(() => task.signal.aborted, "the stop");
        if (task.signal.aborted) return "a part";
        await put(n);
      }
      return "all";
    };
    let stopping = true;
    const insert = (client: pg.PoolClient, id: string) => (n: number) =>
      client.query("INSERT INTO copied VALUES ($1, $2)", [id, n]);
    app.task("transactional", { transactional: true }, (_, task, client) =>
      copy(task, insert(client, "transactional")),
    );
    app.workflow("transaction", (ctx) =>
      ctx.transaction("copy", (client) => copy(ctx.task, insert(client, "transaction"))),
    );
    app.workflow("step", (ctx) => ctx.step("copy", () => copy(ctx.task, () => {})));
    const actions = ["transactional", "transaction", "step"];
    for (const action of actions) await app.insert(action, null, { id: action });
    const working = app.work({ grace: "100 milliseconds" });
    for (const action of actions) await database.until(action, "in-progress");
    await app.stop();
    await working;
    for (const action of actions) {
      const { state, num_tries } = await database.task(action);
      assert.deepEqual([action, state, num_tries], [action, "ready", 0]);
    }
    stopping = false;
    await app.work({ untilIdle: true });
    for (const action of actions) assert.equal((await database.task(action)).result, "all");
    assert.deepEqual(await database.rows("SELECT task, count(*)::int FROM copied GROUP BY 1 ORDER BY 1"), [
      { task: "transaction", count: 3 },
      { task: "transactional", count: 3 },
    ]);
  });

  test("one that has rolled back its completion for the stop has not failed", async () => {
    const app = database.app();
    app.task("rolls back", async (_, task) => {
      const client = new pg.Client(database.connectionString);
      await client.connect();
      await client.query("BEGIN");
      await task.complete({ client });
      completed.open();
      await until(() => task.signal.aborted, "the stop");
      await client.query("ROLLBACK");
      await client.end();
    });
    const completed = gate();
    const { id } = await app.insert("rolls back");
    const working = app.work({ grace: "100 milliseconds" });
    await completed.promise;
    await app.stop();
    await working;
    const { state, num_tries } = await database.task(id);
    assert.deepEqual([state, num_tries], ["ready", 0]);
    await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", id);
  });

  test("a stop after one that is to be at once does not bring the grace back", async () => {
    const app = database.app();
    app.task("endless", () => new Promise(() => {}));
    const { id } = await app.insert("endless");
    const working = app.work({ grace: "1 minute" });
    await database.until(id, "in-progress");
    const began = Date.now();
    await Promise.all([app.stop({ now: true }), app.stop()]);
    await working;
    assert.ok(Date.now() - began < 30_000);
    assert.equal((await database.task(id)).state, "ready");
  });

  test("an app can be used after a stop that comes while its worker closes", async () => {
    const app = database.app();
    app.task("quick", () => {});
    await app.insert("quick");
    let over = false;
    const working = app.work({ untilIdle: true, grace: "200 milliseconds" }).finally(() => {
      over = true;
    });
    while (!over) {
      void app.stop();
      await pause(1);
    }
    await working;
    await app.insert("quick");
  });

  test("an onError that rejects ends neither the worker nor the process", async () => {
    const app = database.app();
    app.task("fails", () => {
      throw new Error("no");
    });
    const { id } = await app.insert("fails");
    const onError = async () => {
      throw new Error("the error service is down");
    };
    await app.work({ untilIdle: true, onError });
    assert.equal((await database.task(id)).state, "scheduled");
    assert.ok(app.lines.some((line) => line.includes("the error service is down")));
  });

  test("a long text is cut between characters", async () => {
    const app = database.app();
    app.task("long", () => {
      throw new Reject(`a${"😀".repeat(6000)}`);
    });
    const { id } = await app.insert("long");
    await app.work({ untilIdle: true });
    const { state, status } = await database.task(id);
    assert.deepEqual([state, status.startsWith("a😀")], ["aborted", true]);
  });

  test("numbers that mean nothing are refused", async () => {
    const app = database.app();
    app.task("any", () => {});
    for (const prefetch of [-10, 0.5, Number.NaN])
      await assert.rejects(async () => app.work({ prefetch }), /prefetch is no integer/);
    for (const maxConcurrency of [Number.POSITIVE_INFINITY, Number.NaN])
      assert.throws(() => app.task("some", { maxConcurrency }, () => {}), /maxConcurrency: .* is no number/);
    for (const options of [
      { notBefore: new Date("tomorrow") },
      { expiresAt: new Date(Number.NaN) },
      { maxTries: Number.POSITIVE_INFINITY },
      { priority: Number.NaN },
      { numRequired: Number.NaN, dependsOn: [] },
      { backoff: { kind: "fixed", initial: "1 second", jitter: Number.NaN } },
      { delay: 5 as unknown as string },
      { expiresIn: Number.NaN as unknown as string },
      { retention: { completed: 5 as unknown as string } },
    ] as const)
      await assert.rejects(
        app.insert("any", null, options as object),
        /no number|invalid Date|a length of time is a text/,
      );
    assert.throws(() => new Retry("later", { after: 5 as unknown as string }), /such as "5 milliseconds"/);
    assert.deepEqual(await database.states("any"), {}, "nothing was inserted");
  });
});
