import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { Complete, Reject, Retry } from "taskq-pg";
import { drain } from "taskq-pg/testing";
import { z } from "zod";
import { Database, gate, until } from "./support.js";

describe("performing", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("results, types, and what a handler is told", async () => {
    const app = database.app();
    const add = app.task<{ a: number; b: number }, number>("add", { results: true }, ({ a, b }, task) => {
      assert.deepEqual(
        [task.id, task.action, task.numTries, task.metadata.by, task.priority],
        ["3", "add", 1, "ann", 5],
      );
      assert.deepEqual(
        task.results.map(({ taskId, statusCode, result }) => [taskId, statusCode, result]),
        [["one", "completed", { n: 1 }]],
      );
      return a + b;
    });
    app.task("number", (n: number) => ({ n }));
    await app.insert("number", 1, { id: "one" });
    await add.insert({ a: 1, b: 2 }, { id: "3", dependsOn: ["one"], metadata: { by: "ann" }, priority: 5 });
    await drain(app);
    const settled = await app.waitForTask<number>("3");
    assert.deepEqual([settled?.statusCode, settled?.result], ["completed", 3]);
    assert.ok(settled?.settledAt instanceof Date);
  });

  test("a wait for a task that is not settled ends with its time", async () => {
    const app = database.app();
    await app.insert("never", null, { id: "never" });
    assert.equal(await app.waitForTask("never", { timeout: 50 }), undefined);
  });

  // A handler may throw anything. The worker survives it, and the task says what it was.
  const thrown: [string, () => unknown, string, RegExp][] = [
    ["an error", () => new TypeError("no such file"), "scheduled", /^TypeError: no such file$/],
    ["a rejection", () => new Reject("it is no image"), "aborted", /^it is no image$/],
    ["a text", () => "just text", "scheduled", /just text/],
    ["undefined", () => undefined, "scheduled", /^undefined$/],
    ["null", () => null, "scheduled", /^null$/],
    ["a symbol", () => Symbol("s"), "scheduled", /Symbol\(s\)/],
    ["an object without a prototype", () => Object.create(null), "scheduled", /null prototype/],
    ["a text with a zero byte", () => new Error("a\0b\ud800"), "scheduled", /^Error: ab\ufffd$/],
    ["a very long text", () => new Error("x".repeat(100_000)), "scheduled", /^Error: x{9000,}$/],
  ];
  for (const [what, make, state, status] of thrown) {
    test(`a handler throws ${what}`, async () => {
      const app = database.app();
      app.task(`throws ${what}`, () => {
        throw make();
      });
      const id = await app.insert(`throws ${what}`);
      await app.work({ untilIdle: true });
      const task = await database.task(id);
      assert.equal(task.state, state);
      assert.match(task.status, status);
      assert.ok(app.lines.length > 0, "it is logged");
    });
  }

  test("the back-off decides about the next try, unless the handler knows", async () => {
    const app = database.app();
    app.task("later", (_, task) => {
      if (task.numTries === 1) throw new Retry("come back", { after: "2 hours" });
    });
    app.task("at once", (_, task) => {
      if (task.numTries <= 2) throw new Retry("again", { after: 0 });
    });
    app.task("uncounted", (_, task) => {
      if (task.numTries === 1) throw new Retry("busy", { countTry: false, after: "3 hours" });
    });
    const later = await app.insert("later");
    const atOnce = await app.insert("at once");
    const uncounted = await app.insert("uncounted", null, { maxTries: 1 });
    await app.work({ untilIdle: true });
    const [row] = await database.rows(
      "SELECT status, not_before - now() > '1 hour' AS late FROM taskq.tasks WHERE id = $1",
      later,
    );
    assert.deepEqual(row, { status: "come back", late: true });
    assert.deepEqual(
      [(await database.task(atOnce)).state, (await database.task(atOnce)).num_tries],
      ["completed", 3],
    );
    assert.deepEqual(
      [(await database.task(uncounted)).state, (await database.task(uncounted)).num_tries],
      ["scheduled", 0],
    );
  });

  // Results that no jsonb holds: the next try would have no other, so the task aborts, and the others of the batch do not.
  const results: [string, () => unknown, RegExp][] = [
    ["a bigint", () => 1n, /no JSON.*BigInt/],
    [
      "a circle",
      () => {
        const circle: Record<string, unknown> = {};
        circle.self = circle;
        return circle;
      },
      /no JSON.*circular/,
    ],
    ["a zero byte", () => ({ text: "a\0b" }), /its return was refused/],
    ["half a character", () => "\ud800", /its return was refused/],
  ];
  test("results that cannot be stored", async () => {
    const app = database.app();
    app.task("result", (n: number | null) =>
      n === null ? "good" : (results[n] as (typeof results)[0])[1](),
    );
    const ids = await app.insertMany(
      "result",
      results.map((_, n) => n),
    );
    const [good] = await app.insertMany("result", [null]);
    await app.work({ untilIdle: true });
    for (const [n, id] of ids.entries()) {
      const task = await database.task(id);
      assert.equal(task.state, "aborted", results[n]?.[0]);
      assert.match(task.status, results[n]?.[2] as RegExp);
    }
    assert.equal((await database.task(good as string)).result, "good");
  });

  // Results that JSON writes in its own way.
  const kept: [string, () => unknown, unknown][] = [
    ["a date", () => new Date(0), "1970-01-01T00:00:00.000Z"],
    ["no number", () => Number.NaN, null],
    ["nothing", () => undefined, null],
    ["an empty text", () => "", ""],
    ["zero", () => 0, 0],
  ];
  test("results that are kept in another form, or look like none", async () => {
    const app = database.app();
    app.task("kept", (n: number) => (kept[n] as (typeof kept)[0])[1]());
    const ids = await app.insertMany(
      "kept",
      kept.map((_, n) => n),
    );
    await app.work({ untilIdle: true });
    for (const [n, id] of ids.entries()) {
      const { state, result } = await database.task(id);
      assert.deepEqual([state, result], ["completed", kept[n]?.[2]], kept[n]?.[0]);
    }
  });

  test("children that the queue refuses give the task back, and say why", async () => {
    const app = database.app();
    app.task(
      "bad parent",
      () => new Complete(1, { children: [{ action: "child", dependsOn: ["no such task"] }] }),
    );
    const id = await app.insert("bad parent");
    await app.work({ untilIdle: true });
    const task = await database.task(id);
    assert.deepEqual(
      [task.state, /its return was refused: .*no such task/.test(task.status)],
      ["scheduled", true],
    );
  });

  test("a body that does not fit aborts the task", async () => {
    const app = database.app();
    const seen: unknown[] = [];
    const schema = z.object({ file: z.string(), width: z.number().default(100) });
    app.task("resize", { schema }, (body) => void seen.push(body));
    app.task("own check", { schema: (body) => assertEven(body) }, (n) => n / 2);
    const good = await app.insert("resize", { file: "a.png" });
    const bad = await app.insert("resize", { file: 7 });
    const [even, odd] = await app.insertMany("own check", [4, 3]);
    await app.work({ untilIdle: true });
    assert.deepEqual(seen, [{ file: "a.png", width: 100 }]);
    assert.equal((await database.task(good)).state, "completed");
    assert.match((await database.task(bad)).status, /^the body does not fit: file: .*string/);
    assert.equal((await database.task(even as string)).result, 2);
    const { state, status } = await database.task(odd as string);
    assert.deepEqual([state, status], ["aborted", "the body does not fit: 3 is odd"]);
  });

  test("children come with the completion", async () => {
    const app = database.app();
    app.task(
      "parent",
      () =>
        new Complete("done", {
          status: "split",
          children: [{ action: "leaf", body: 1 }],
          childrenBlock: true,
        }),
    );
    const order: string[] = [];
    app.task("leaf", () => void order.push("leaf"));
    app.task("end", () => void order.push("end"));
    const parent = await app.insert("parent");
    await app.insert("end", null, { dependsOn: [parent] });
    await drain(app);
    assert.deepEqual(order, ["leaf", "end"]);
    assert.deepEqual(
      [(await database.task(parent)).status, (await database.task(parent)).result],
      ["split", "done"],
    );
  });

  test("a checkpoint comes with the next try", async () => {
    const app = database.app();
    const seen: unknown[] = [];
    app.task("steps", async (_, task) => {
      seen.push(task.checkpoint);
      await task.report({ status: "half", progress: 0.5, checkpoint: { line: 40 } });
      if (task.numTries === 1) throw new Retry("interrupted", { after: 0 });
    });
    await app.insert("steps");
    await app.work({ untilIdle: true });
    assert.deepEqual(seen, [null, { line: 40 }]);
  });

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
    const id = await app.insert("woken");
    assert.equal((await app.waitForTask(id))?.result, "awake");
    await app.stop();
    await working;
  });

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
    assert.equal((await database.task(first as string)).state, "completed");
  });

  test("a statement_timeout is no failure of a claim that sleeps", async () => {
    const app = database.app({ statement_timeout: 1000 });
    app.task("rarely", () => "awake");
    const working = app.work();
    await sleep(3500);
    const id = await app.insert("rarely");
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
    const id = await app.insert("patient");
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
    const id = await app.insert("fails");
    const heard: unknown[] = [];
    await app.work({
      untilIdle: true,
      onError: (error, task) => heard.push((error as Error).message, task.id),
    });
    assert.deepEqual(heard, ["heard", id]);
  });
});

function assertEven(body: unknown): number {
  if (typeof body !== "number" || body % 2 !== 0) throw new Error(`${body} is odd`);
  return body;
}
