import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Id } from "taskq-pg";
import { Database, gate, until } from "./support.js";

describe("workers", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("only actions that are asked for, and never one without a handler", async () => {
    const app = database.app();
    app.task("mine", () => 1);
    app.task("not now", () => 2);
    await app.insertMany("mine", [1]);
    await app.insertMany("not now", [1]);
    await app.insertMany("unknown", [1]);
    await app.work({ untilIdle: true, actions: ["mine"] });
    assert.deepEqual(await database.states("mine"), { completed: 1 });
    assert.deepEqual(await database.states("not now"), { ready: 1 });
    assert.deepEqual(await database.states("unknown"), { ready: 1 });
    await assert.rejects(app.work({ actions: ["unknown"] }), /no handler is registered for action "unknown"/);
    assert.throws(() => app.task("mine", () => 1), /registered twice/);
  });

  test("concurrency is that of a worker, maxConcurrency that of all of them", async () => {
    const apps = [database.app(), database.app()];
    const running = { a: 0, b: 0 };
    const most = { a: 0, b: 0, both: 0 };
    const handler = (name: "a" | "b") => async () => {
      running[name]++;
      most[name] = Math.max(most[name], running[name]);
      most.both = Math.max(most.both, running.a + running.b);
      await sleep(5);
      running[name]--;
    };
    for (const app of apps) {
      app.task("limited", { maxConcurrency: 2 }, handler("a"));
      app.task("free", handler("b"));
    }
    await database.app().insertMany("limited", new Array(40).fill(null));
    await database.app().insertMany("free", new Array(40).fill(null));
    const working = apps.map((app) => app.work({ concurrency: 6 }));
    await until(async () => (await database.states("limited")).completed === 40, "the limited ones");
    await until(async () => (await database.states("free")).completed === 40, "the others");
    for (const app of apps) await app.stop();
    await Promise.all(working);
    assert.ok(most.a <= 2 && most.both <= 12, JSON.stringify(most));
    const [{ max_concurrency }] = await database.rows(
      "SELECT max_concurrency FROM taskq.actions WHERE action = 'limited'",
    );
    assert.equal(max_concurrency, 2);
  });

  test("an idle worker is woken by the insertion", async () => {
    const app = database.app();
    app.task("woken", () => "awake");
    const working = app.work();
    await until(
      async () =>
        (
          await database.rows(
            "SELECT FROM pg_stat_activity WHERE query LIKE '%own_tasks%' AND state = 'active' AND pid <> pg_backend_pid()",
          )
        ).length > 0,
      "the claim to sleep",
    );
    const { id } = await app.insert("woken");
    assert.equal((await app.wait(id))?.result, "awake");
    await app.stop();
    await working;
  });

  test("what waits for its turn goes back when the worker stops, and its try does not count", async () => {
    const app = database.app();
    const go = gate();
    const begun = gate();
    app.task("turn", () => {
      begun.open();
      return go.promise;
    });
    const [first, ...others] = await app.insertMany("turn", [1, 2, 3]);
    const working = app.work({ concurrency: 1, prefetch: 5 });
    // A task is in progress before the worker has heard of it, and what has not begun when it stops goes back.
    await begun.promise;
    for (const id of others) await database.until(id, "in-progress");
    const stopped = app.stop();
    for (const id of others) {
      const task = await database.until(id, "ready");
      assert.deepEqual([task.num_tries, task.num_releases], [0, 1]);
    }
    go.open();
    await stopped;
    await working;
    assert.equal((await database.task(first as Id)).state, "completed");
  });

  test("a statement_timeout is no failure of a claim that sleeps", async () => {
    const app = database.app({ statement_timeout: 1000 });
    app.task("rarely", () => "awake");
    const working = app.work();
    await sleep(3500);
    const { id } = await app.insert("rarely");
    assert.equal((await database.until(id, "completed")).result, "awake");
    await app.stop();
    await working;
    assert.deepEqual(app.lines, []);
  });

  test("a transaction_timeout is no failure of a claim that sleeps", async (context) => {
    const version = Number((await database.rows("SHOW server_version_num"))[0].server_version_num);
    if (version < 170000) return context.skip("PostgreSQL 17 has it");
    const app = database.app({ options: "-c transaction_timeout=1000" });
    app.task("seldom", () => "awake");
    const working = app.work();
    await sleep(3500);
    const { id } = await app.insert("seldom");
    assert.equal((await database.until(id, "completed")).result, "awake");
    await app.stop();
    await working;
    assert.deepEqual(app.lines, []);
  });

  test("a grace of months is one", async () => {
    const app = database.app();
    const begun = gate();
    app.task("patient", async (_, task) => {
      begun.open();
      await sleep(1500, undefined, { signal: task.signal });
      return "ended";
    });
    const { id } = await app.insert("patient");
    const working = app.work({ grace: "60 days" });
    await begun.promise;
    await app.stop();
    await working;
    assert.equal((await database.task(id)).result, "ended");
  });

  test("an error that no repetition mends is thrown", async () => {
    await database.rows("CREATE ROLE no_rights LOGIN").catch(() => {});
    const app = database.app({
      connectionString: undefined,
      database: database.name,
      user: "no_rights",
    });
    app.task("mine", () => 1);
    await assert.rejects(app.work(), { code: "42501" });
    const lost = database.app({ connectionString: undefined, database: "no such database" });
    lost.task("mine", () => 1);
    await assert.rejects(lost.work(), { code: "3D000" });
  });

  test("onError hears of errors", async () => {
    const app = database.app();
    app.task("fails", () => {
      throw new Error("heard");
    });
    const { id } = await app.insert("fails");
    const heard: unknown[] = [];
    await app.work({
      untilIdle: true,
      onError: (error, task) => heard.push((error as Error).message, task.id),
    });
    assert.deepEqual(heard, ["heard", id]);
  });
});
