import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Id } from "taskq-pg";
import { Complete, Reject, Retry } from "taskq-pg";
import { drain } from "taskq-pg/testing";
import { z } from "zod";
import { Database } from "./support.js";

describe("what handlers return and throw", () => {
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
    const settled = await app.wait<number>("3");
    assert.deepEqual([settled?.statusCode, settled?.result], ["completed", 3]);
    assert.ok(settled?.settledAt instanceof Date);
  });

  test("a wait for a task that is not settled ends with its time", async () => {
    const app = database.app();
    await app.insert("never", null, { id: "never" });
    await assert.rejects(app.wait("never", { timeout: "50 milliseconds" }), { name: "TimedOut" });
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
      const { id } = await app.insert(`throws ${what}`);
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
      if (task.numTries <= 2) throw new Retry("again", { after: "0 milliseconds" });
    });
    app.task("uncounted", (_, task) => {
      if (task.numTries === 1) throw new Retry("busy", { countTry: false, after: "3 hours" });
    });
    const { id: later } = await app.insert("later");
    const { id: atOnce } = await app.insert("at once");
    const { id: uncounted } = await app.insert("uncounted", null, { maxTries: 1 });
    await app.work({ untilIdle: true });
    const [row] = await database.rows(
      "SELECT status, not_before - now() > '1 hour' AS late FROM taskq.tasks WHERE id = $1",
      later,
    );
    assert.deepEqual(row, { status: "come back", late: true });
    assert.deepEqual([(await database.task(atOnce)).state, (await database.task(atOnce)).num_tries], ["completed", 3]);
    assert.deepEqual(
      [(await database.task(uncounted)).state, (await database.task(uncounted)).num_tries],
      ["scheduled", 0],
    );
  });

  // Results that no jsonb holds: the next try would have no other, so the task aborts, and the others of the batch do not.
  const results: [string, () => unknown, RegExp][] = [
    ["a bigint", () => 1n, /no JSON.*BigInt/],
    ["no number", () => Number.NaN, /no JSON: NaN/],
    ["an infinite one, in an array", () => [Number.POSITIVE_INFINITY], /no JSON: Infinity/],
    ["an invalid Date, in an object", () => ({ at: new Date("never") }), /no JSON: an invalid Date/],
    ["an error", () => new TypeError("x"), /no JSON: a TypeError/],
    ["a map", () => new Map([[1, 2]]), /no JSON: a Map/],
    ["a set, in an object", () => ({ of: new Set([1]) }), /no JSON: a Set/],
    ["a function", () => () => 1, /no JSON: a function/],
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
    app.task("result", (n: number | null) => (n === null ? "good" : (results[n] as (typeof results)[0])[1]()));
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
    assert.equal((await database.task(good as Id)).result, "good");
  });

  // Results that JSON writes in its own way.
  const kept: [string, () => unknown, unknown][] = [
    ["a date", () => new Date(0), "1970-01-01T00:00:00.000Z"],
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
    app.task("bad parent", () => new Complete(1, { children: [{ action: "child", dependsOn: ["no such task"] }] }));
    const { id } = await app.insert("bad parent");
    await app.work({ untilIdle: true });
    const task = await database.task(id);
    assert.deepEqual([task.state, /its return was refused: .*no such task/.test(task.status)], ["scheduled", true]);
  });

  test("a body that does not fit aborts the task", async () => {
    const app = database.app();
    const seen: unknown[] = [];
    const schema = z.object({ file: z.string(), width: z.number().default(100) });
    app.task("resize", { schema }, (body) => void seen.push(body));
    app.task("own check", { schema: (body) => assertEven(body) }, (n) => n / 2);
    // Of an app that knows nothing of the schema.
    const other = database.app();
    const { id: good } = await other.insert("resize", { file: "a.png" });
    const { id: bad } = await other.insert("resize", { file: 7 });
    const [even, odd] = await other.insertMany("own check", [4, 3]);
    await app.work({ untilIdle: true });
    assert.deepEqual(seen, [{ file: "a.png", width: 100 }]);
    assert.equal((await database.task(good)).state, "completed");
    assert.match((await database.task(bad)).status, /^the body does not fit: file: .*string/);
    assert.equal((await database.task(even as Id)).result, 2);
    const { state, status } = await database.task(odd as Id);
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
    const { id: parent } = await app.insert("parent");
    await app.insert("end", null, { dependsOn: [parent] });
    await drain(app);
    assert.deepEqual(order, ["leaf", "end"]);
    assert.deepEqual([(await database.task(parent)).status, (await database.task(parent)).result], ["split", "done"]);
  });

  test("a checkpoint comes with the next try", async () => {
    const app = database.app();
    const seen: unknown[] = [];
    app.task("steps", async (_, task) => {
      seen.push(task.checkpoint);
      await task.report({ status: "half", progress: 0.5, checkpoint: { line: 40 } });
      if (task.numTries === 1) throw new Retry("interrupted", { after: "0 milliseconds" });
    });
    await app.insert("steps");
    await app.work({ untilIdle: true });
    assert.deepEqual(seen, [null, { line: 40 }]);
  });
});

function assertEven(body: unknown): number {
  if (typeof body !== "number" || body % 2 !== 0) throw new Error(`${body} is odd`);
  return body;
}
