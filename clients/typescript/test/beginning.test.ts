import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { between, pipe } from "./between.js";
import { Database, gate, until } from "./support.js";

// A worker that has stopped, or failed, begins nothing and claims nothing.
describe("after the end", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("a handler that waits for its lease does not begin once the worker stops", async () => {
    const extending = gate();
    const go = gate();
    // Holds back what extends the lease before the handler begins: the claim was for the shorter one.
    const hold = (data: Buffer) => {
      if (!data.includes("extend_tasks")) return undefined;
      extending.open();
      return go.promise;
    };
    const slow = await between(database, (socket) => pipe(socket, hold));
    const app = database.app({ connectionString: slow.connectionString });
    app.task("short", { lease: "4 minutes" }, () => {});
    app.task("long", { lease: "1 hour" }, () => assert.fail("the worker has been stopped"));
    await database.rows("SELECT taskq.insert_task('long', 'long', max_tries => 1)");
    const working = app.work({ grace: "1 minute" });
    await extending.promise;
    const stopped = app.stop();
    go.open();
    await stopped;
    await working;
    const { state, num_tries, num_releases } = await database.task("long");
    assert.deepEqual([state, num_tries, num_releases], ["ready", 0, 1]);
    slow.close();
  });

  test("a worker that has failed returns what was in hand, and claims nothing with it", async () => {
    const user = `${database.name}_fails`;
    await database.rows(`CREATE ROLE ${user} LOGIN SUPERUSER`);
    try {
      const app = database.app({ connectionString: undefined, database: database.name, user });
      const go = gate();
      const begun = gate();
      app.task("going on", async (n: number) => {
        if (n === 2) assert.fail("the worker has failed");
        begun.open();
        await go.promise;
      });
      const { id: first } = await app.insert("going on", 1);
      const working = app.work();
      await begun.promise;
      const claiming = "usename = $1 AND query LIKE '%own_tasks($1, $2%' AND state = 'active'";
      await until(
        async () => (await database.rows(`SELECT FROM pg_stat_activity WHERE ${claiming}`, user)).length === 1,
        "the claim to sleep",
      );
      // Its next connection is refused.
      await database.rows(`ALTER ROLE ${user} NOLOGIN`);
      await database.rows(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${claiming}`, user);
      await assert.rejects(working, /not permitted to log in/);
      await database.rows(`ALTER ROLE ${user} LOGIN`);
      const [{ id: second }] = await database.rows("SELECT taskq.insert_task('second', 'going on', '2') AS id");
      go.open();
      // Its signal was aborted, so it has not completed.
      const { num_tries } = await database.until(first, "ready");
      assert.equal(num_tries, 0);
      assert.equal((await database.task(second)).num_tries, 0);
      await app.close();
    } finally {
      await database.rows(`DROP ROLE ${user}`);
    }
  });
});
