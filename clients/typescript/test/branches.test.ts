import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Id } from "taskq-pg";
import { Reject } from "taskq-pg";
import { Database, gate, pause } from "./support.js";

// What runs beside each other in one workflow, as in a `Promise.all`.
describe("branches of a workflow", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("a branch beside a wait begins no step once the task is suspended", async () => {
    const app = database.app();
    let runs = 0;
    app.workflow("beside", (ctx) =>
      Promise.all([ctx.waitFor("go", { signal: "beside" }), pause(300).then(() => ctx.step("late", () => ++runs))]),
    );
    const { id } = await app.insert("beside");
    const working = app.work();
    await database.until(id, "blocked");
    await pause(600);
    assert.equal(runs, 0);
    await app.signal("beside", "went");
    assert.deepEqual((await database.until(id, "completed")).result, ["went", 1]);
    await app.stop();
    await working;
  });

  test("a branch beside one that has failed begins no step", async () => {
    const app = database.app();
    let runs = 0;
    app.workflow("failing", (ctx) =>
      Promise.all([
        ctx.step("fails", () => Promise.reject(new Error("no"))),
        pause(200).then(() => ctx.step("late", () => ++runs)),
      ]),
    );
    await app.insert("failing");
    await app.work({ untilIdle: true });
    await pause(400);
    assert.equal(runs, 0);
  });

  test("a step that runs beside one that fails ends before the next try", async () => {
    const app = database.app();
    const go = gate();
    const log: string[] = [];
    app.workflow("two", (ctx) =>
      Promise.all([
        ctx.step("pay", async () => {
          log.push("pay");
          await go.promise;
          log.push("paid");
          return 7;
        }),
        ctx.step("mail", () => {
          log.push(`mail ${ctx.task.numTries}`);
          if (ctx.task.numTries === 1) throw new Error("no mail server");
        }),
      ]),
    );
    const { id } = await app.insert("two", null, { backoff: { kind: "fixed", initial: "0 milliseconds" } });
    const working = app.work();
    await database.until(id, "in-progress");
    // Long enough for a next try, if there were one.
    await pause(1000);
    go.open();
    assert.deepEqual((await database.until(id, "completed")).result, [7, null]);
    assert.deepEqual(log, ["pay", "mail 1", "paid", "mail 2"]);
    await app.stop();
    await working;
  });

  test("a step that holds a step, beside one that fails, ends as well", async () => {
    const app = database.app();
    const failed = gate();
    app.workflow("nested beside", (ctx) =>
      Promise.all([
        ctx.step("fails", () => {
          if (ctx.task.numTries > 1) return;
          failed.open();
          throw new Error("no");
        }),
        ctx.step("outer", async () => {
          await failed.promise;
          await pause(200);
          return ctx.step("inner", () => 7);
        }),
      ]),
    );
    const { id } = await app.insert("nested beside", null, {
      backoff: { kind: "fixed", initial: "0 milliseconds" },
    });
    const working = app.work();
    assert.deepEqual((await database.until(id, "completed")).result, [null, 7]);
    await app.stop();
    await working;
  });

  test("a step that holds a step, and outlives its workflow, gives back its connection", async () => {
    const app = database.app();
    const go = gate();
    let inner = 0;
    app.workflow("raced", (ctx) =>
      Promise.race([
        ctx.transaction("slow", async () => {
          await go.promise;
          return ctx.step("inner", () => ++inner);
        }),
        ctx.step("fast", () => 1),
      ]),
    );
    app.task("next", { transactional: true }, () => "next");
    const ids = [await app.insert("raced")];
    const working = app.work({ concurrency: 1 });
    await database.until(ids[0] as Id, "completed");
    go.open();
    const { id: next } = await app.insert("next");
    await database.until(next, "completed");
    assert.equal(inner, 0);
    await app.stop();
    await working;
  });

  test("a step or a wait that fails before it is awaited fails its workflow, and not the process", async () => {
    const app = database.app();
    app.task("aborts", () => {
      throw new Reject("no");
    });
    app.workflow("later", async (ctx, kind: "step" | "transaction" | "call") => {
      const fails = () => {
        throw new Error("too early");
      };
      const early = kind === "call" ? ctx.call("early", "aborts") : ctx[kind]("early", fails);
      if (kind === "call") await ctx.sleep("nap", "1 millisecond");
      await ctx.step("slow", () => pause(300));
      return early.catch((error) => error.message);
    });
    const unhandled: unknown[] = [];
    const hear = (reason: unknown) => void unhandled.push(reason);
    process.on("unhandledRejection", hear);
    const ids = await app.insertMany("later", ["step", "transaction", "call"]);
    const working = app.work();
    const [step, transaction, call] = await Promise.all(ids.map((id) => database.until(id, "completed")));
    await app.stop();
    await working;
    process.off("unhandledRejection", hear);
    assert.deepEqual([step.result, transaction.result], ["too early", "too early"]);
    assert.match(call.result, /has aborted: no/);
    assert.deepEqual(unhandled, []);
  });
});
