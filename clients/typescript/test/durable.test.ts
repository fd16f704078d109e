import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { Aborted, type App, Reject, Retry, TimedOut } from "taskq-pg";
import { drain, travel } from "taskq-pg/testing";
import { Database, gate, pause, until } from "./support.js";

describe("workflows", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
    await database.client.query("CREATE TABLE effects (workflow text, step int)");
  });
  after(() => database.drop());

  const work = (app: App) => app.work({ untilIdle: true });
  const steps = async (id: string) =>
    (await database.rows("SELECT step FROM taskq.steps WHERE task_id = $1 ORDER BY position", id)).map(
      ({ step }) => step,
    );

  test("a step that was saved is not run again, and its result is the same", async () => {
    const app = database.app();
    const run: string[] = [];
    const seen: unknown[] = [];
    app.workflow("steps", async (ctx, body: { card: string }) => {
      const pay = await ctx.step("pay", () => {
        run.push("pay");
        return { card: body.card, at: new Date(0) };
      });
      seen.push(pay);
      const nothing = await ctx.step("nothing", () => void run.push("nothing"));
      seen.push(nothing);
      await ctx.step("ship", () => {
        run.push("ship");
        if (ctx.task.numTries === 1) throw new Retry("no truck", { after: 0 });
      });
      return pay;
    });
    const id = await app.insert("steps", { card: "4711" });
    await work(app);
    assert.deepEqual(run, ["pay", "nothing", "ship", "ship"]);
    // As JSON has it, the first time, too: code never sees one thing now and another after a restart.
    const pay = { card: "4711", at: "1970-01-01T00:00:00.000Z" };
    assert.deepEqual(seen, [pay, null, pay, null]);
    assert.deepEqual((await database.task(id)).result, pay);
    assert.deepEqual(await steps(id), ["pay", "nothing", "ship"]);
  });

  test("an error of a step gives the task back, a rejection aborts it", async () => {
    const app = database.app();
    app.workflow("errors", (ctx, kind: string) =>
      ctx.step("fails", () => {
        throw kind === "reject" ? new Reject("never") : new TypeError("not now");
      }),
    );
    const [retry, reject] = await app.insertMany("errors", ["retry", "reject"]);
    await work(app);
    const ends = await Promise.all([database.task(retry as string), database.task(reject as string)]);
    assert.deepEqual(
      ends.map(({ state, status }) => [state, status]),
      [
        ["scheduled", "TypeError: not now"],
        ["aborted", "never"],
      ],
    );
  });

  test("a step and the rows of its transaction are one", async () => {
    const app = database.app();
    app.workflow("rows", async (ctx) => {
      const saved = await ctx.transaction("write", async (client) => {
        await client.query("INSERT INTO effects VALUES ($1, 1)", [ctx.id]);
        return 7;
      });
      await ctx
        .transaction("fails", async (client) => {
          await client.query("INSERT INTO effects VALUES ($1, 2)", [ctx.id]);
          throw new Error("changed my mind");
        })
        .catch(() => {});
      if (ctx.task.numTries === 1) throw new Retry("again", { after: 0 });
      return saved;
    });
    const id = await app.insert("rows");
    await work(app);
    assert.equal((await database.task(id)).result, 7);
    assert.deepEqual(await database.rows("SELECT step FROM effects WHERE workflow = $1", id), [{ step: 1 }]);
  });

  test("a name is used once in a run, unless it says otherwise", async () => {
    const app = database.app();
    app.workflow("names", async (ctx) => {
      for (let n = 0; n < 3; n++) await ctx.step("loop", () => n, { unique: false });
      await ctx.step("same", () => 1);
      await ctx.step("same", () => 2);
    });
    const id = await app.insert("names", null, { maxTries: 1 });
    await work(app);
    assert.deepEqual(await steps(id), ["loop", "loop#2", "loop#3", "same"]);
    assert.match((await database.task(id)).status, /step "same" is used twice/);
  });

  test("while it waits for a signal it holds nothing, and no catch or finally block sees it", async () => {
    const app = database.app();
    const seen: string[] = [];
    app.workflow("approval", async (ctx, id: number) => {
      try {
        const answer = await ctx.waitFor("approved", { signal: `approve ${id}` });
        return { answer };
      } catch {
        seen.push("catch");
      } finally {
        seen.push("finally");
      }
    });
    const id = await app.insert("approval", 7, { maxTries: 1 });
    await work(app);
    const waiting = await database.task(id);
    assert.deepEqual([waiting.state, waiting.num_tries, waiting.actor_id], ["blocked", 0, null]);
    const [wait] = await database.rows("SELECT waits_for FROM taskq.waits WHERE task_id = $1", id);
    assert.deepEqual(wait.waits_for, ["approve 7"]);
    assert.deepEqual(seen, []);
    assert.equal(await app.signal("approve 7", { by: "ann" }), true);
    assert.equal(await app.signal("approve 7", { by: "bob" }), false, "the first one wins");
    await work(app);
    assert.deepEqual((await database.task(id)).result, { answer: { by: "ann" } });
    assert.deepEqual(seen, ["finally"]);
  });

  test("a signal may come before anything waits for it", async () => {
    const app = database.app();
    app.workflow("early", (ctx) => ctx.waitFor("go", { signal: "early bird", timeout: "1 day" }));
    await app.signal("early bird", [1, 2]);
    const id = await app.insert("early");
    await work(app);
    assert.deepEqual((await database.task(id)).result, [1, 2]);
  });

  test("a signal that was cancelled, or has expired, is an Aborted", async () => {
    const app = database.app();
    app.workflow("cancelled signal", async (ctx, id: string) => {
      const error = await ctx.waitFor("go", { signal: id }).catch((reason) => reason);
      assert.ok(error instanceof Aborted);
      return error.taskId;
    });
    const id = await app.insert("cancelled signal", "never mind");
    await work(app);
    await database.rows("SELECT taskq.cancel_tasks('{never mind}')");
    await work(app);
    assert.equal((await database.task(id)).result, "never mind");
  });

  test("a workflow waits for any task by its id", async () => {
    const app = database.app();
    app.workflow("waits for a task", (ctx) => ctx.waitFor("load", { task: "load 1" }));
    app.task("load", () => ({ rows: 3 }));
    await app.insert("load", null, { id: "load 1" });
    const id = await app.insert("waits for a task", null, { priority: 9 });
    await drain(app, { concurrency: 1 });
    assert.deepEqual((await database.task(id)).result, { rows: 3 });
  });

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
    const id = await app.insert("children", null, { id: "children" });
    await drain(app);
    assert.deepEqual((await database.task(id)).result, { none: [], one: 81, many: [1, 4, 9] });
    assert.equal(entered, 3);
    const ids = await database.rows(
      "SELECT id, priority FROM taskq.tasks WHERE action = 'square' ORDER BY id",
    );
    assert.ok(ids.every(({ id }) => /^children\/(one|many)\/\d\/[0-9a-f]{8}$/.test(id)));
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
    const id = await app.insert("picky parent", null, { id: "pp" });
    await work(app);
    assert.match((await database.task(id)).result, /^task "pp\/all\/1\/[0-9a-f]{8}" has aborted: not two$/);
  });

  test("waits that are asked for together are one suspension", async () => {
    const app = database.app();
    let entered = 0;
    app.task("part", (n: number) => n);
    app.workflow("together", async (ctx) => {
      entered++;
      return Promise.all([
        ctx.map("parts", "part", [1, 2]),
        ctx.waitFor("go", { signal: "together" }),
        ctx.step("beside", () => pause(50).then(() => "beside")),
      ]);
    });
    const id = await app.insert("together");
    await work(app);
    assert.deepEqual(await database.states("part"), { completed: 2 });
    await app.signal("together", "went");
    await work(app);
    assert.deepEqual((await database.task(id)).result, [[1, 2], "went", "beside"]);
    assert.equal(entered, 2);
  });

  test("a workflow that is cancelled does no further step", async () => {
    const app = database.app();
    const go = gate();
    let second = false;
    app.workflow("cancelled", { lease: "600 milliseconds" }, async (ctx) => {
      await ctx.step("first", () => go.promise);
      await ctx.step("second", () => {
        second = true;
      });
    });
    const id = await app.insert("cancelled");
    const working = app.work();
    await database.until(id, "in-progress");
    await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", id);
    await until(() => app.lines.some((line) => line.includes("lost")), "the heartbeat to tell");
    go.open();
    await app.stop();
    await working;
    assert.equal(second, false);
    assert.deepEqual(await steps(id), []);
  });

  test("what the queue refuses to wait for gives the workflow back, and says why", async () => {
    const app = database.app();
    app.workflow("refused", (ctx) => ctx.waitFor("load", { task: "no such task" }));
    const id = await app.insert("refused");
    await work(app);
    const task = await database.task(id);
    assert.deepEqual(
      [task.state, /its return was refused: .*no such task/.test(task.status)],
      ["scheduled", true],
    );
  });

  test("a suspension that is refused spoils no other return of its batch", async () => {
    const app = database.app();
    app.workflow("mixed", async (ctx, n: number) =>
      n === 0 ? ctx.waitFor("load", { task: "no such task" }) : n,
    );
    const ids = await app.insertMany("mixed", [1, 0, 2]);
    await work(app);
    const states = await Promise.all(ids.map(async (id) => (await database.task(id)).state));
    assert.deepEqual(states, ["completed", "scheduled", "completed"]);
  });

  test("a child waits for its own children, and results pass through", async () => {
    const app = database.app();
    app.workflow("fibonacci", async (ctx, n: number): Promise<number> => {
      if (n < 2) return n;
      const [a, b] = await ctx.map<number>("parts", "fibonacci", [n - 1, n - 2]);
      return (a as number) + (b as number);
    });
    const id = await app.insert("fibonacci", 6);
    await drain(app);
    assert.equal((await database.task(id)).result, 8);
  });

  test("hundreds of workflows that wait take no worker from others", async () => {
    const app = database.app();
    app.workflow("crowd", (ctx, n: number) => ctx.waitFor("go", { signal: `crowd ${n}` }));
    app.task("beside", () => "done");
    const ids = await app.insertMany(
      "crowd",
      Array.from({ length: 300 }, (_, n) => n),
    );
    const beside = await app.insert("beside", null, { priority: -1 });
    await app.work({ untilIdle: true, concurrency: 5 });
    assert.equal((await database.task(beside)).result, "done");
    assert.deepEqual(await database.states("crowd"), { blocked: 300 });
    for (const [n] of ids.entries()) await app.signal(`crowd ${n}`, n);
    await app.work({ untilIdle: true, concurrency: 5 });
    assert.deepEqual(await database.states("crowd"), { completed: 300 });
  });

  test("a role that is a worker and no more can run workflows", async () => {
    await database.rows("CREATE ROLE taskq_ts_worker LOGIN").catch(() => {}); // roles are the server's, not the database's
    await database.rows("SELECT taskq.grant_worker('taskq_ts_worker')");
    const app = database.app({
      connectionString: undefined,
      database: database.name,
      user: "taskq_ts_worker",
    });
    app.task("part of it", (n: number) => n);
    app.workflow("by a worker", async (ctx) => {
      const step = await ctx.step("step", () => 1);
      const row = await ctx.transaction("row", () => 2);
      const child = await ctx.call<number>("child", "part of it", 3);
      await ctx.sleep("sleep", "10 milliseconds");
      const signal = await ctx.waitFor<number>("go", { signal: "by a worker", timeout: "1 hour" });
      return [step, row, child, signal];
    });
    const id = await app.insert("by a worker");
    await app.signal("by a worker", 4);
    const working = app.work();
    assert.deepEqual((await database.until(id, "completed")).result, [1, 2, 3, 4]);
    await app.stop();
    await working;
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
    const id = await app.insert("rewound");
    await drain(app);
    await database.rows("SELECT taskq.rewind_task($1, 'images/children')", id);
    await drain(app);
    assert.deepEqual(run, ["a", "render", "b", "render", "b"]);
    assert.equal((await database.task(id)).state, "completed");
  });
});

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
      const late = await ctx
        .waitFor("answer", { signal: "no answer", timeout: "2 days" })
        .catch((error) => error);
      assert.ok(late instanceof TimedOut);
      await ctx.sleep("again", "1 day");
      return "patient";
    });
    const id = await app.insert("patient", null, { maxTries: 1 });
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
    const id = await app.insert("both");
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
    const id = await app.insert("impatient");
    await drain(app, { actions: ["impatient"] });
    await travel(app, "2 hours");
    await drain(app, { actions: ["impatient"] });
    await drain(app);
    assert.equal((await database.task(id)).result, "late");
    const children = await database.rows("SELECT id FROM taskq.tasks WHERE action = 'late child'");
    assert.equal(children.length, 2);
  });

  test("an answer that comes in time counts, however late the workflow is entered", async () => {
    const app = database.app();
    app.workflow("late entry", (ctx) => ctx.waitFor("answer", { signal: "in time", timeout: "1 day" }));
    const id = await app.insert("late entry");
    await drain(app);
    await travel(app, "23 hours");
    await app.signal("in time", "yes");
    await travel(app, "3 days"); // less than the retention of the signal
    await drain(app);
    assert.equal((await database.task(id)).result, "yes");
  });
});

describe("workflows that are killed", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
    await database.client.query("CREATE TABLE effects (workflow text, step int)");
  });
  after(() => database.drop());

  const kills = Number(process.env.TASKQ_KILLS ?? (process.env.TASKQ_TEST_LONG ? 200 : 6));
  test(`twenty steps, killed ${kills} times in the middle: each transactional step has its effect once`, async () => {
    const client = new pg.Client(database.connectionString);
    await client.connect();
    const unfinished = async () =>
      (
        await client.query(
          "SELECT count(*)::int FROM taskq.tasks WHERE action = 'twenty' AND status_code <> 'completed'",
        )
      ).rows[0].count;
    let inserted = 0;
    for (let killed = 0; killed < kills; ) {
      // Always some that are under way.
      for (let missing = 5 - (await unfinished()); missing > 0; missing--) {
        const id = `w${++inserted}`;
        await client.query("SELECT taskq.insert_task($1, 'twenty', '100'::jsonb, max_tries => 100000)", [id]);
        await client.query("SELECT taskq.signal($1, '1000')", [`go ${id}`]);
      }
      const worker = database.worker("twenty");
      await worker.says("works");
      await pause(Math.random() * 400);
      worker.kill("SIGKILL");
      await worker.exited;
      const { rows } = await client.query(
        `SELECT t.id FROM taskq.tasks AS t WHERE t.action = 'twenty' AND t.status_code <> 'completed'
                  AND EXISTS (SELECT FROM taskq.steps AS s WHERE s.task_id = t.id)`,
      );
      if (rows.length > 0) killed++;
      // What a lease that ends does, sooner.
      await client.query("SELECT taskq.release_tasks(actions => '{twenty,double}')");
    }
    const last = database.worker("twenty");
    await until(
      async () => (await unfinished()) === 0,
      "all workflows to end",
      () => last.output,
    );
    last.kill("SIGTERM");
    await last.exited;
    const wrong = await client.query(
      `SELECT id, result FROM taskq.tasks WHERE action = 'twenty' AND result IS DISTINCT FROM to_jsonb(100 + 153 + 8 + 1000 + 2 + 4)`,
    );
    assert.deepEqual(wrong.rows, []);
    const effects = await client.query(
      "SELECT workflow, step, count(*)::int FROM effects GROUP BY 1, 2 HAVING count(*) <> 1",
    );
    assert.deepEqual(effects.rows, []);
    const all = await client.query("SELECT count(*)::int FROM effects");
    assert.equal(all.rows[0].count, 9 * inserted);
    await client.end();
  });
});
