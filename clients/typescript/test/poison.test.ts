import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { inspect } from "node:util";
import type { Id } from "taskq-pg";
import { Complete, Reject, Retry } from "taskq-pg";
import { between, errorMessage, pipe, READY } from "./between.js";
import { Database } from "./support.js";

// What a handler returns or throws may have no JSON and no text. The worker and the tasks beside it are none the worse for it.
describe("poison", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  const circle: Record<string, unknown> = {};
  circle.self = circle;
  const big = 1n as any;
  const child = (task: object) => new Complete(1, { children: [{ action: "none", ...task }] });
  const thrown = (error: unknown) => () => {
    throw error;
  };
  const error = (change: PropertyDescriptor & { key: string }) =>
    Object.defineProperty(new Error("x"), change.key, change);
  const throwing = {
    get(): never {
      throw new Error("not this");
    },
  };
  const revoked = () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    return proxy;
  };

  const cases: Record<string, [() => unknown, string, RegExp | null]> = {
    "a child with a bigint": [() => child({ body: { n: 1n } }), "aborted", /no JSON.*BigInt/],
    "a child with a circle": [() => child({ body: circle }), "aborted", /no JSON.*circular/],
    "a child's metadata": [() => child({ metadata: { n: 1n } }), "aborted", /no JSON.*BigInt/],
    "a status": [() => new Complete(1, { status: big }), "aborted", /no JSON.*BigInt/],
    "a delay": [() => new Complete(1, { delayChildren: big }), "scheduled", /a length of time is a text/],
    "a toJSON that throws nothing": [() => ({ toJSON: thrown(undefined) }), "aborted", /no JSON/],
    "a toJSON that throws the second time": [
      () => {
        let asked = 0;
        return { toJSON: () => (asked++ === 0 ? 1 : assert.fail("asked twice")) };
      },
      "completed",
      null,
    ],
    "after a bigint": [thrown(new Retry("later", { after: `${big}` })), "scheduled", /later/],
    "after no number": [thrown(new Retry("later", { after: "NaN" })), "scheduled", /refused/],
    "a symbol as a name": [thrown(error({ key: "name", value: Symbol("s") })), "scheduled", /no text/],
    "a message that throws": [thrown(error({ key: "message", ...throwing })), "scheduled", /no text/],
    "a message without a prototype": [
      thrown(error({ key: "message", value: Object.create(null) })),
      "scheduled",
      /no text/,
    ],
    "a rejection whose message is no text": [
      thrown(Object.assign(new Reject("x"), { message: { a: 1 } })),
      "aborted",
      /object/,
    ],
    "an inspection that throws": [thrown({ [inspect.custom]: thrown(new Error("not this")) }), "scheduled", /no text/],
    "a code that throws": [thrown(Object.defineProperty({}, "code", throwing)), "scheduled", /./],
    "a revoked proxy": [thrown(revoked()), "scheduled", /no text/],
  };

  for (const [what, [handler, state, status]] of Object.entries(cases)) {
    test(what, async () => {
      const app = database.app();
      app.task(what, handler);
      app.task("beside", () => "fine");
      const { id } = await app.insert(what);
      const { id: beside } = await app.insert("beside");
      await app.work({ untilIdle: true, onError: thrown(revoked()) });
      const task = await database.task(id);
      assert.equal(task.state, state);
      if (status) assert.match(task.status, status);
      assert.deepEqual([(await database.task(beside)).result, (await database.task(beside)).num_tries], ["fine", 1]);
    });
  }

  // The first is what an array of 34 million numbers leads to: less than a message, and more than the server makes a jsonb of.
  for (const [message, state] of [
    ["invalid memory alloc request size 1073741824", "aborted"],
    ["could not find the file", "scheduled"],
  ] as const) {
    test(`a result that the server refuses with an internal error: ${message}`, async () => {
      const refusal = Buffer.concat([errorMessage("ERROR", "XX000", message), READY]);
      const way = await between(database, (socket) =>
        pipe(socket, (data) => {
          if (!data.includes("refuse this")) return undefined;
          socket.write(refusal);
          return false;
        }),
      );
      const app = database.app({ connectionString: way.connectionString });
      app.task(`plain ${state}`, () => "refuse this");
      app.task(`transactional ${state}`, { transactional: true }, () => "refuse this");
      app.task("beside", () => "fine");
      const ids = [await app.insert(`plain ${state}`), await app.insert(`transactional ${state}`)];
      const { id: beside } = await app.insert("beside");
      await app.work({ untilIdle: true });
      await app.close();
      way.close();
      for (const id of ids) {
        const task = await database.task(id);
        assert.equal(task.state, state);
        assert.match(task.status, new RegExp(message));
      }
      assert.equal((await database.task(beside)).result, "fine");
    });
  }

  test("a result is returned again as it is where the server had an internal error that is over", async () => {
    const refusal = Buffer.concat([errorMessage("ERROR", "XX000", "could not open relation"), READY]);
    let refusals = 0;
    const way = await between(database, (socket) =>
      pipe(socket, (data) => {
        if (!data.includes("keep this") || refusals === 2) return undefined;
        refusals++;
        socket.write(refusal);
        return false;
      }),
    );
    const app = database.app({ connectionString: way.connectionString });
    app.task("kept", () => "keep this");
    const { id } = await app.insert("kept");
    await app.work({ untilIdle: true });
    await app.close();
    way.close();
    const { result, num_tries } = await database.task(id);
    assert.deepEqual([result, num_tries, refusals], ["keep this", 1, 2]);
  });

  // Alone, or with a return, which has nothing to say where handlers complete their tasks.
  for (const what of ["own", "return"] as const) {
    test(`a claim is made again where the server had an internal error: ${what}`, async () => {
      const refusal = Buffer.concat([errorMessage("ERROR", "XX000", "could not open relation"), READY]);
      let refusals = 0;
      let last = 2;
      const way = await between(database, (socket) =>
        pipe(socket, (data) => {
          if (!data.includes(`taskq ${what}`) || refusals === last) return undefined;
          refusals++;
          socket.write(refusal);
          return false;
        }),
      );
      const app = database.app({ connectionString: way.connectionString });
      app.task(`claimed ${what}`, { transactional: true }, () => "done");
      const [one, two] = await app.insertMany(`claimed ${what}`, [1, 2]);
      await app.work({ untilIdle: true, concurrency: 1 });
      assert.deepEqual(
        [(await database.task(one as Id)).result, (await database.task(two as Id)).result, refusals],
        ["done", "done", 2],
      );
      last = Number.POSITIVE_INFINITY;
      // The worker does not end for it: it finds the action, and leaves that out for a while.
      app.task("another", () => "done");
      if (what === "own") await app.work({ untilIdle: true });
      const found = app.lines.filter((line) => line.includes("cannot be sent"));
      assert.deepEqual(found.length, what === "own" ? 2 : 0, `${found}`);
      await app.close();
      way.close();
    });
  }

  const skip = process.env.TASKQ_TEST_LONG ? false : "TASKQ_TEST_LONG is not set";
  test("steps and results that are too large for a grant are read, and never nothing", { skip }, async () => {
    const app = database.app();
    const paid: string[] = [];
    app.task("part", () => "x".repeat(50_000_000));
    app.task("sum", { results: true }, (_, task) =>
      task.results.reduce((sum, { result }) => sum + String(result).length, 0),
    );
    app.workflow("large steps", async (ctx) => {
      await ctx.step("pay", () => void paid.push(ctx.id));
      for (let n = 0; n < 5; n++) await ctx.step(`part ${n}`, () => "x".repeat(50_000_000));
      await ctx.sleep("nap", "1 millisecond");
    });
    const parts = await app.insertMany("part", [1, 2, 3, 4, 5]);
    const sum = await app.insert("sum", null, { dependsOn: parts });
    const workflow = await app.insert("large steps");
    const working = app.work({ concurrency: 1 });
    assert.equal((await sum.wait({ timeout: "2 minutes" })).result, 250_000_000);
    await workflow.wait({ timeout: "2 minutes" });
    await app.stop();
    await working;
    assert.deepEqual(paid, [workflow.id], "no step runs again");
  });

  test("results that are too large for a jsonb, and together for a text", { skip }, async () => {
    const app = database.app();
    app.task("large", () => "x".repeat(280_000_000));
    app.task("beside", () => "fine");
    const ids = await app.insertMany("large", [1, 2]);
    const { id: beside } = await app.insert("beside");
    await app.work({ untilIdle: true });
    for (const id of ids) {
      const { state, status } = await database.task(id);
      assert.equal(state, "aborted");
      assert.match(status, /refused: string too long/);
    }
    assert.equal((await database.task(beside)).result, "fine");
  });
});
