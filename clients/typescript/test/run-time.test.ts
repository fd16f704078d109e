import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Lost } from "taskq-pg";
import { Database, gate, pause, until } from "./support.js";

describe("max_run_time", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  /** Waits until the signal is aborted, and returns why. */
  const aborted = (signal: AbortSignal) =>
    new Promise<unknown>((resolve) => signal.addEventListener("abort", () => resolve(signal.reason), { once: true }));

  test("ends the handler when it is over, and the next try begins after that", async () => {
    await database.rows(
      `SELECT taskq.set_action('bounded', max_run_time => '1 second', max_concurrency => 1, max_tries => 3,
                               backoff => '{"kind": "fixed", "initial": "0 seconds"}')`,
    );
    const app = database.app();
    let running = 0;
    const most: number[] = [];
    const reasons: unknown[] = [];
    const after: number[] = [];
    app.task("bounded", async (_, task) => {
      most.push(++running);
      const begun = performance.now();
      reasons.push(await aborted(task.signal));
      after.push(performance.now() - begun);
      running--;
    });
    const { id } = await app.insert("bounded");
    const working = app.work({ concurrency: 10 });
    await database.until(id, "aborted");
    await until(() => reasons.length === 3, "the last handler to be told");
    await app.stop();
    await working;
    assert.deepEqual(most, [1, 1, 1], "one at a time");
    for (const reason of reasons) assert.ok(reason instanceof Lost);
    // The lease is a minute: a third of it is when the heartbeat would tell.
    for (const time of after) assert.ok(time < 10_000, `told after ${time} ms`);
    assert.ok(app.lines.some((line) => line.includes("max_run_time")));
    assert.equal((await database.task(id)).cause, "timeout");
  });

  test("of a task that is longer than its lease is heeded as well", async () => {
    const app = database.app();
    const told = gate<number>();
    app.task("leased", { lease: "600 milliseconds" }, async (_, task) => {
      const begun = performance.now();
      await aborted(task.signal);
      told.open(performance.now() - begun);
    });
    const { id } = await app.insert("leased", null, { maxRunTime: "2 seconds", maxTries: 1 });
    const working = app.work();
    const time = await told.promise;
    assert.ok(time > 1800, `${time}: heartbeats have extended it until then`);
    await database.until(id, "aborted");
    await app.stop();
    await working;
  });

  test("a handler that does not heed it keeps its place for the grace, and no second one runs beside it", async () => {
    const app = database.app();
    const go = gate();
    let running = 0;
    const most: number[] = [];
    app.task("deaf", async (_, task) => {
      most.push(++running);
      if (task.numTries === 1) await go.promise;
      running--;
    });
    app.task("other", () => "done");
    const backoff = { kind: "fixed", initial: "0 seconds" } as const;
    const { id } = await app.insert("deaf", null, { maxRunTime: "500 milliseconds", maxTries: 5, backoff });
    const working = app.work({ concurrency: 1, grace: "700 milliseconds" });
    await until(async () => (await database.task(id)).num_releases >= 1, "the second try to go back");
    const other = await app.insert("other");
    await database.until(other, "completed");
    assert.deepEqual(most, [1], "the first one still runs, and its place is free");
    go.open();
    await database.until(id, "completed");
    await app.stop();
    await working;
    assert.deepEqual(most, [1, 1]);
    assert.equal((await database.task(id)).num_tries, 2, "what went back has used up no try");
  });

  test("what waits for its turn begins with enough of it, or goes back", async () => {
    await database.rows("SELECT taskq.set_action('fetched ahead', max_run_time => '2 seconds', max_tries => 3)");
    const app = database.app();
    let runs = 0;
    app.task("fetched ahead", () => {
      runs++;
      return pause(700);
    });
    await app.insertMany("fetched ahead", Array(8).fill(1));
    const working = app.work({ concurrency: 1, prefetch: 5 });
    await until(async () => (await database.states("fetched ahead")).completed === 8, "all to be done");
    await app.stop();
    await working;
    assert.equal(runs, 8, "each once");
    const tries = await database.rows("SELECT num_tries FROM taskq.tasks WHERE action = 'fetched ahead'");
    assert.ok(tries.every(({ num_tries }) => num_tries === 1));
  });
});
