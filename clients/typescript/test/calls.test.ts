import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { Database } from "./support.js";

describe("how many calls a worker makes", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  // The statements that go to the server, by whatever client of this process.
  const counted = async (work: () => Promise<unknown>) => {
    const { query } = pg.Client.prototype;
    let count = 0;
    pg.Client.prototype.query = function (this: pg.Client, ...values: unknown[]) {
      count++;
      return (query as any).apply(this, values);
    } as never;
    try {
      await work();
    } finally {
      pg.Client.prototype.query = query;
    }
    return count;
  };

  test("10,000 tasks, each performed once, in far fewer calls", async () => {
    const app = database.app();
    const seen = new Set<string>();
    let performed = 0;
    app.task("no-op", (_, task) => {
      performed++;
      seen.add(task.id);
    });
    await app.insertMany("no-op", new Array(10_000).fill(null));
    const calls = await counted(() => app.work({ untilIdle: true, concurrency: 100 }));
    assert.deepEqual([performed, seen.size], [10_000, 10_000]);
    assert.deepEqual(await database.states("no-op"), { completed: 10_000 });
    // A hundred calls would do; heartbeats and batches that are not full come on top.
    assert.ok(calls < 1000, `${calls} calls`);
  });

  test("one task at a time takes one round trip a task", async () => {
    const app = database.app();
    app.task("single", () => "done");
    await app.insertMany("single", new Array(300).fill(null));
    const calls = await counted(() => app.work({ untilIdle: true, concurrency: 1 }));
    assert.deepEqual(await database.states("single"), { completed: 300 });
    // Besides: the lengths of leases, the first and the last claim, and heartbeats if it is slow.
    assert.ok(calls < 320, `${calls} calls`);
  });

  test("with prefetch, tasks wait here for their turn, and need no round trip each", async () => {
    const app = database.app();
    let running = 0;
    let most = 0;
    const order: number[] = [];
    app.task("prefetched", async (n: number) => {
      most = Math.max(most, ++running);
      await null;
      order.push(n);
      running--;
    });
    const numbers = Array.from({ length: 300 }, (_, n) => n);
    await app.insertMany("prefetched", numbers);
    const calls = await counted(() => app.work({ untilIdle: true, concurrency: 1, prefetch: 50 }));
    assert.deepEqual(order, numbers);
    assert.equal(most, 1);
    assert.ok(calls < 100, `${calls} calls`);
  });
});
