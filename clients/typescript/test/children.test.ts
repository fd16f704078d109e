import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Aborted, type App, Reject } from "taskq-pg";
import { drain } from "taskq-pg/testing";
import { Database, pause } from "./support.js";

describe("children of workflows", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  const work = (app: App) => app.work({ untilIdle: true });

  test("one child, and many: results in the order of the bodies", async () => {
    const app = database.app();
    app.task("square", async (n: number) => {
      await pause(10 * (4 - n));
      return n * n;
    });
    let entered = 0;
    app.workflow("children", async (ctx) => {
      entered++;
      const none = await ctx.map("none", "square", []);
      const one = await ctx.call("one", "square", 9);
      const many = await ctx.map("many", "square", [1, 2, 3], { priority: 3 });
      return { none, one, many };
    });
    const { id } = await app.insert("children", null, { id: "children" });
    await drain(app);
    assert.deepEqual((await database.task(id)).result, { none: [], one: 81, many: [1, 4, 9] });
    assert.equal(entered, 3);
    const ids = await database.rows("SELECT id, priority FROM taskq.tasks WHERE action = 'square' ORDER BY id");
    assert.ok(ids.every(({ id }) => /^children\/(one|many)\/\d$/.test(id)));
    assert.deepEqual(
      ids.map(({ priority }) => priority),
      [3, 3, 3, 0],
    );
  });

  test("a child that aborts is an Aborted that names it", async () => {
    const app = database.app();
    app.task("picky", (n: number) => {
      if (n === 2) throw new Reject("not two");
      return n;
    });
    app.workflow("picky parent", async (ctx) => {
      const error = await ctx.map("all", "picky", [1, 2, 3]).catch((reason) => reason);
      assert.ok(error instanceof Aborted);
      return error.message;
    });
    const { id } = await app.insert("picky parent", null, { id: "pp" });
    await work(app);
    assert.match((await database.task(id)).result, /^task "pp\/all\/1" has aborted: not two$/);
  });

  test("a child waits for its own children, and results pass through", async () => {
    const app = database.app();
    app.workflow("fibonacci", async (ctx, n: number): Promise<number> => {
      if (n < 2) return n;
      const [a, b] = await ctx.map<number>("parts", "fibonacci", [n - 1, n - 2]);
      return (a as number) + (b as number);
    });
    const { id } = await app.insert("fibonacci", 6);
    await drain(app);
    assert.equal((await database.task(id)).result, 8);
  });

  test("rewound to a step, it goes on from there, and its children are new ones", async () => {
    const app = database.app();
    const run: string[] = [];
    app.task("render", () => run.push("render"));
    app.workflow("rewound", async (ctx) => {
      await ctx.step("a", () => void run.push("a"));
      await ctx.map("images", "render", [1]);
      await ctx.step("b", () => void run.push("b"));
    });
    const { id } = await app.insert("rewound");
    await drain(app);
    await database.rows("SELECT taskq.rewind_task($1, 'images:tasks')", id);
    await drain(app);
    assert.deepEqual(run, ["a", "render", "b", "render", "b"]);
    assert.equal((await database.task(id)).state, "completed");
  });
});
