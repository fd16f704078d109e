import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Id } from "taskq-pg";
import { between, pipe } from "./between.js";
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

  test("concurrency and maxConcurrency are kept, and both are used", async () => {
    const app = database.app();
    const running = { a: 0, b: 0 };
    const most = { a: 0, b: 0, both: 0 };
    const handler = (name: "a" | "b") => async () => {
      running[name]++;
      most[name] = Math.max(most[name], running[name]);
      most.both = Math.max(most.both, running.a + running.b);
      await sleep(5);
      running[name]--;
    };
    app.task("limited", { maxConcurrency: 2 }, handler("a"));
    app.task("free", handler("b"));
    await app.insertMany("limited", new Array(40).fill(null));
    await app.insertMany("free", new Array(40).fill(null));
    await app.work({ untilIdle: true, concurrency: 6 });
    assert.deepEqual(most, { a: 2, b: most.b, both: 6 });
    assert.ok(most.b >= 4);
    assert.deepEqual(await database.states("limited"), { completed: 40 });
  });

  test("an action that gets room again while the claim sleeps is asked for", async () => {
    const app = database.app();
    const gates = [gate(), gate()];
    app.task("one at a time", { maxConcurrency: 1 }, (n: number) => gates[n]?.promise);
    app.task("other", () => {});
    await app.insert("one at a time", 0, { id: "first" });
    const working = app.work({ concurrency: 4 });
    await database.until("first", "in-progress");
    gates[0]?.open();
    await database.until("first", "completed");
    await app.insert("one at a time", 1, { id: "second" });
    await database.until("second", "in-progress");
    gates[1]?.open();
    await database.until("second", "completed");
    await app.stop();
    await working;
  });

  test("an action that gets room again while the claim has no connection is asked for", async () => {
    const [go, back, cut] = [gate(), gate(), gate()];
    let claims = 0;
    const way = await between(database, async (socket) => {
      if (claims >= 2) await back.promise;
      pipe(socket, (data) => {
        if (!data.includes("taskq own") || ++claims !== 2) return undefined;
        // It leaves out the action that has no room.
        socket.destroy();
        cut.open();
        return false;
      });
    });
    const app = database.app({ connectionString: way.connectionString });
    app.task("one", { maxConcurrency: 1 }, (n: number) => (n === 1 ? go.promise : undefined));
    app.task("beside", () => {});
    const inserter = database.app();
    const { id: first } = await inserter.insert("one", 1);
    const working = app.work({ concurrency: 4 });
    await cut.promise;
    go.open();
    await database.until(first, "completed");
    await sleep(300);
    const begun = Date.now();
    back.open();
    await database.until(await inserter.insert("one", 2), "completed");
    assert.ok(Date.now() - begun < 7000, "before the claim has slept for its time");
    await app.stop();
    await working;
    way.close();
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
