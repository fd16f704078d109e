import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { travel } from "taskq-pg/testing";
import { Database, pause, until } from "./support.js";

// What a database, or the process, has set for reasons of its own.
describe("settings of others", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
    await database.rows(`ALTER DATABASE ${database.name} SET datestyle = 'SQL, DMY'`);
    await database.rows(`ALTER DATABASE ${database.name} SET timezone = 'Asia/Kolkata'`);
    await database.rows(`ALTER DATABASE ${database.name} SET intervalstyle = 'sql_standard'`);
    await database.rows(`ALTER DATABASE ${database.name} SET extra_float_digits = -10`);
  });
  after(() => database.drop());

  test("times are the same in every DateStyle", async () => {
    const app = database.app();
    app.task("any", () => 1);
    const { id } = await app.insert("any");
    await app.work({ untilIdle: true });
    const settled = await app.wait(id);
    assert.ok(Math.abs(Number(settled?.settledAt) - Date.now()) < 60_000, `${settled?.settledAt}`);
  });

  test("parsers that the process has set are not the package's", async () => {
    const { builtins } = pg.types;
    const types = [builtins.JSONB, builtins.JSON, builtins.TIMESTAMPTZ];
    const parsers = types.map((type) => pg.types.getTypeParser(type));
    for (const type of types) pg.types.setTypeParser(type, (text: string) => text);
    try {
      const app = database.app();
      let paid = 0;
      app.task("child", (n: number) => ({ n }));
      app.workflow("parsed", async (ctx) => {
        const pay = await ctx.step("pay", () => ({ paid: ++paid }));
        const row = await ctx.transaction("row", () => ({ row: 1 }));
        await ctx.sleep("nap", "1 millisecond");
        return [pay, row, await ctx.call("child", "child", 7), ctx.task.metadata];
      });
      const { id } = await app.insert("parsed", null, { metadata: { by: "ann" } });
      const working = app.work();
      const settled = await app.wait(id, { timeout: "1 minute" });
      assert.deepEqual(settled?.result, [{ paid: 1 }, { row: 1 }, { n: 7 }, { by: "ann" }]);
      await app.stop();
      await working;
    } finally {
      for (const [n, type] of types.entries()) pg.types.setTypeParser(type, parsers[n] as never);
    }
  });

  test("an answer that comes while a handler computes is heard, also after the query_timeout", async () => {
    const app = database.app({ query_timeout: 2000 });
    const client = new pg.Client(database.connectionString);
    await client.connect();
    await client.query("BEGIN");
    await client.query("SELECT taskq.insert_task('computed', 'none')");
    const inserting = app.insert("none", null, { id: "computed", onConflict: "skip" });
    const waiting = "wait_event_type = 'Lock' AND query LIKE '%insert_tasks%'";
    await until(
      async () => (await database.rows(`SELECT FROM pg_stat_activity WHERE ${waiting}`)).length === 1,
      "the insertion to wait",
    );
    // Sent before this process computes.
    const rolledBack = client.query("ROLLBACK");
    await new Promise(setImmediate);
    for (const end = Date.now() + 4000; Date.now() < end; );
    await rolledBack;
    assert.equal((await inserting).id, "computed");
    await client.end();
  });

  test("a statement_timeout does not end a wait for a task", async () => {
    const app = database.app({ statement_timeout: 500 });
    const { id } = await app.insert("late");
    await assert.rejects(app.wait(id, { timeout: "50 milliseconds" }), { name: "TimedOut" });
    const waiting = app.wait(id, { timeout: "1 minute" });
    await pause(1500);
    app.task("late", () => "done");
    await app.work({ untilIdle: true });
    assert.equal((await waiting)?.result, "done");
  });

  // The last one: the queue's clock stands still after it.
  test("travel arrives when it says, in every DateStyle", async () => {
    const app = database.app();
    const then = await travel(app, "1 hour");
    assert.ok(Math.abs(then.getTime() - Date.now() - 3_600_000) < 1_800_000, `${then}`);
    const client = new pg.Client(database.connectionString);
    await client.connect();
    const { rows } = await client.query("SELECT floor(1000 * extract(epoch FROM taskq.clock()))::bigint AS now");
    await client.end();
    assert.equal(Number(rows[0].now), then.getTime());
    const later = await travel(app, "1 day");
    assert.equal(later.getTime(), then.getTime() + 86_400_000);
  });
});
