import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { between, errorMessage, pipe, READY } from "./between.js";
import { Database, gate, until } from "./support.js";

describe("connections of a pool", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  for (const given of [false, true]) {
    test(`one that is lost as soon as it is open ends no process, with ${given ? "a given" : "its own"} pool`, async () => {
      let lost = 0;
      const way = await between(database, (socket) => {
        // The other connections of an app say this first.
        let other: boolean | undefined;
        const heed = (data: Buffer) => {
          other ??= data.includes("taskq-pg");
          return undefined;
        };
        pipe(socket, heed, (data) => {
          if (lost > 0 || other || !data.includes(READY)) return data;
          lost++;
          return Buffer.concat([data, errorMessage("FATAL", "57P01", "terminating connection")]);
        });
      });
      const { connectionString } = way;
      const pool = given ? new pg.Pool({ connectionString }) : undefined;
      const app = database.app(pool ? { pool } : { connectionString });
      const action = `any, ${given}`;
      app.task(action, { transactional: true }, () => "done");
      const id = await database.app().insert(action, null, { backoff: { kind: "fixed", initial: "0 milliseconds" } });
      const working = app.work();
      assert.equal((await database.until(id, "completed")).result, "done");
      assert.equal(lost, 1);
      await app.stop();
      await working;
      await app.close();
      await pool?.end();
      way.close();
    });
  }

  for (const how of ["lost", "given back"]) {
    test(`a handler that waits for one does not begin once its task is ${how}`, async () => {
      const pool = new pg.Pool({ connectionString: database.connectionString, max: 1 });
      const app = database.app({ pool });
      let begun = 0;
      app.task(how, { transactional: true, lease: "1 second" }, () => void begun++);
      const held = await pool.connect();
      const { id } = await app.insert(how);
      const working = app.work({ grace: "100 milliseconds" });
      await database.until(id, "in-progress");
      if (how === "lost") {
        await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", id);
        await until(() => app.lines.some((line) => line.includes("lost")), "the heartbeat to tell");
      } else {
        await app.stop();
        await working;
        await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", id);
      }
      held.release();
      // Comes after what has waited before.
      (await pool.connect()).release();
      await app.stop();
      await working;
      assert.equal(begun, 0);
      await pool.end();
    });
  }

  test("one that a handler never gives back is missed by no later work()", async () => {
    const app = database.app();
    const begun = gate();
    app.task<number>("first hangs", { transactional: true }, async (_, task) => {
      if (task.id !== "hangs") return "the second";
      begun.open();
      await new Promise(() => {});
    });
    await app.insert("first hangs", null, { id: "hangs" });
    const working = app.work({ concurrency: 1, grace: "100 milliseconds" });
    await begun.promise;
    await app.stop();
    await working;
    // The same task is not performed again here as long as that handler runs.
    const again = app.work({ concurrency: 1 });
    const { id } = await app.insert("first hangs");
    assert.equal((await database.until(id, "completed")).result, "the second");
    await database.rows("SELECT taskq.cancel_tasks('{hangs}')");
    await app.stop();
    await again;
  });
});
