import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { Database, pause, until } from "./support.js";

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
