import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { TimedOut } from "taskq-pg";
import { drain, travel } from "taskq-pg/testing";
import { Database } from "./support.js";

// Each has a database of its own: the clock of the queue stands still after a journey.
describe("workflows and time", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("sleeping for days, and a wait that times out", async () => {
    const app = database.app();
    let entered = 0;
    app.workflow("patient", async (ctx) => {
      entered++;
      await ctx.sleep("cool off", "3 days");
      const late = await ctx.waitFor("answer", { signal: "no answer", timeout: "2 days" }).catch((error) => error);
      assert.ok(late instanceof TimedOut);
      await ctx.sleep("again", "1 day");
      return "patient";
    });
    const { id } = await app.insert("patient", null, { maxTries: 1 });
    await drain(app);
    assert.equal((await database.task(id)).state, "scheduled");
    await travel(app, "2 days");
    await drain(app);
    assert.equal(entered, 1, "it is not entered before its time");
    await travel(app, "1 day");
    await drain(app);
    await travel(app, "2 days");
    await drain(app);
    assert.equal(await app.signal("no answer", "too late"), true);
    await travel(app, "1 day");
    await drain(app);
    const task = await database.task(id);
    assert.deepEqual([task.state, task.result, task.num_tries], ["completed", "patient", 1]);
    assert.equal(entered, 4);
  });
});

describe("workflows, children and time", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("a wait beside children that times out keeps the children", async () => {
    const app = database.app();
    let children = 0;
    app.task("slow child", (n: number) => {
      children++;
      return n;
    });
    app.workflow("both", async (ctx) => {
      const [sizes, answer] = await Promise.all([
        ctx.map("sizes", "slow child", [1, 2]),
        ctx.waitFor("answer", { signal: "none comes", timeout: "1 day" }).catch((error) => error.name),
      ]);
      return { sizes, answer };
    });
    const { id } = await app.insert("both");
    // Only the workflow is performed; its children come later than the timeout.
    await drain(app, { actions: ["both"] });
    await travel(app, "2 days");
    await drain(app, { actions: ["both"] });
    assert.equal((await database.task(id)).state, "blocked", "it waits for the children now");
    await drain(app);
    assert.deepEqual((await database.task(id)).result, { sizes: [1, 2], answer: "TimedOut" });
    assert.equal(children, 2, "each child once");
  });

  test("children that take too long are a TimedOut, and a later wait goes on", async () => {
    const app = database.app();
    app.task("late child", () => "late");
    app.workflow("impatient", async (ctx) => {
      const first = await ctx.call("try", "late child", null, { timeout: "1 hour" }).catch((error) => error);
      if (first instanceof TimedOut) return ctx.call("again", "late child");
      return first;
    });
    const { id } = await app.insert("impatient");
    await drain(app, { actions: ["impatient"] });
    await travel(app, "2 hours");
    await drain(app, { actions: ["impatient"] });
    await drain(app);
    assert.equal((await database.task(id)).result, "late");
    const children = await database.rows("SELECT id FROM taskq.tasks WHERE action = 'late child'");
    assert.equal(children.length, 2);
  });

  test("what was joined with a wait that has failed is over when the function goes on to another wait", async () => {
    const app = database.app();
    app.workflow("given up", async (ctx, order: "first" | "last") => {
      const never = () => ctx.waitFor("never", { signal: `never given ${order}` });
      const late = () => ctx.waitFor("late", { signal: "none in time", timeout: "1 hour" });
      const both = order === "first" ? () => [late(), never()] : () => [never(), late()];
      const error = await Promise.all(both()).catch((reason) => reason.name);
      await ctx.sleep("cool off", "1 hour");
      return error;
    });
    const ids = [await app.insert("given up", "first"), await app.insert("given up", "last")];
    await drain(app);
    await travel(app, "2 hours");
    await drain(app);
    for (const id of ids) assert.equal((await database.task(id)).state, "scheduled", "it sleeps only");
    await travel(app, "2 hours");
    await drain(app);
    for (const id of ids) assert.equal((await database.task(id)).result, "TimedOut");
  });

  test("branches that wait for each other in the end are both waited for, also when a wait of one has failed", async () => {
    const app = database.app();
    app.workflow("apart", (ctx) =>
      Promise.all([
        ctx.waitFor("one", { signal: "one apart" }),
        ctx
          .waitFor("two", { signal: "never two", timeout: "1 hour" })
          .catch(() => ctx.sleep("rest", "1 hour").then(() => "rested")),
      ]),
    );
    const { id } = await app.insert("apart");
    for (let n = 0; n < 3; n++) {
      await drain(app);
      await travel(app, "2 hours");
    }
    assert.equal((await database.task(id)).state, "blocked");
    await app.signal("one apart", 1);
    await drain(app);
    assert.deepEqual((await database.task(id)).result, [1, "rested"]);
  });

  test("a sleep beside a wait holds back no timeout", async () => {
    const app = database.app();
    let timedOut = 0;
    app.workflow("beside", (ctx) =>
      Promise.allSettled([
        ctx.sleep("long", "3 days"),
        ctx
          .waitFor("answer", { signal: "none beside", timeout: "1 hour" })
          .catch(() => ctx.step("tell", () => ++timedOut)),
      ]).then((all) => all.map(({ status }) => status)),
    );
    const { id } = await app.insert("beside");
    await drain(app);
    await travel(app, "2 hours");
    await drain(app);
    assert.equal(timedOut, 1);
    await travel(app, "3 days");
    await drain(app);
    assert.deepEqual((await database.task(id)).result, ["fulfilled", "fulfilled"]);
  });

  test("an answer that comes in time counts, however late the workflow is entered", async () => {
    const app = database.app();
    app.workflow("late entry", (ctx) => ctx.waitFor("answer", { signal: "in time", timeout: "1 day" }));
    const { id } = await app.insert("late entry");
    await drain(app);
    await travel(app, "23 hours");
    await app.signal("in time", "yes");
    await travel(app, "3 days"); // less than the retention of the signal
    await drain(app);
    assert.equal((await database.task(id)).result, "yes");
  });
});
