import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Database, pause, until } from "./support.js";

// Workers in processes of their own: they are stopped and killed.
describe("stopping and dying", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
    await database.client.query("CREATE TABLE bookings (id text)");
  });
  after(() => database.drop());

  const insert = async (id: string, body: object, options = "") => {
    await database.rows(`SELECT taskq.insert_task($1, 'job', $2::jsonb${options})`, id, body);
    return id;
  };
  /** No worker may take a task of another test. */
  const idle = () =>
    until(
      async () =>
        (await database.rows("SELECT FROM taskq.tasks WHERE status_code IN ('pending', 'in-progress')")).length === 0,
      "an empty queue",
    );

  test("SIGTERM while idle ends it at once", async () => {
    const worker = database.worker("worker");
    await until(
      async () =>
        (
          await database.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%own_tasks%' AND state = 'active' AND pid <> pg_backend_pid()",
          )
        ).length === 1,
      "the claim to sleep",
    );
    const begun = Date.now();
    worker.kill("SIGTERM");
    assert.deepEqual(await worker.exited, { code: 0, signal: null });
    assert.match(worker.output, /SIGTERM: the worker stops\nstopped/);
    assert.ok(Date.now() - begun < 9000, "it did not wait for the claim, which sleeps for 10 seconds");
  });

  test("SIGTERM before it has connected ends it", async () => {
    const worker = database.worker("worker");
    await worker.says("works");
    worker.kill("SIGTERM");
    assert.deepEqual(await worker.exited, { code: 0, signal: null });
  });

  test("SIGTERM lets the handlers end, and takes nothing more", async () => {
    const running = await insert("running", { sleep: 1500 });
    const worker = database.worker("worker", { CONCURRENCY: "1" });
    await worker.says("begun running");
    const next = await insert("next", {});
    worker.kill("SIGTERM");
    assert.deepEqual(await worker.exited, { code: 0, signal: null });
    assert.deepEqual([(await database.task(running)).state, (await database.task(next)).state], ["completed", "ready"]);
    await database.rows("SELECT taskq.cancel_tasks('{next}')");
  });

  for (const heed of [true, false]) {
    test(`what outlives the grace is given back; a handler that does ${heed ? "" : "not "}heed its signal`, async () => {
      const id = await insert(`long ${heed}`, { sleep: 60_000, heed }, ", max_tries => 1");
      const worker = database.worker("worker", { GRACE: "500 milliseconds" });
      await worker.says(`begun ${id}`);
      worker.kill("SIGTERM");
      assert.deepEqual(await worker.exited, { code: 0, signal: null });
      const task = await database.task(id);
      assert.deepEqual([task.state, task.num_tries, task.num_releases], ["ready", 0, 1], "no try is used up");
      assert.match(task.status, /given back by a worker that stops/);
      await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", id);
    });
  }

  test("a second signal does not wait for the grace", async () => {
    const id = await insert("second", { sleep: 60_000, heed: false });
    const worker = database.worker("worker");
    await worker.says(`begun ${id}`);
    worker.kill("SIGTERM");
    await worker.says("the worker stops");
    worker.kill("SIGINT");
    assert.deepEqual(await worker.exited, { code: 0, signal: null });
    assert.equal((await database.task(id)).state, "ready");
    await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", id);
  });

  for (const [signals, between] of [
    [["SIGTERM"], 0],
    [["SIGTERM", "SIGINT"], 0],
    [["SIGTERM", "SIGINT"], 1200],
  ] as const) {
    const how = between ? `, ${between} ms between them` : "";
    test(`a transaction that a handler has left open does not hold up ${signals.join(" and ")}${how}`, async () => {
      const id = `open ${signals.length} ${between}`;
      await database.rows("SELECT taskq.insert_task($1, 'completing', $2::jsonb)", id, { sleep: 60_000 });
      const other = await insert(`beside ${id}`, { sleep: 60_000 });
      const worker = database.worker("worker", { GRACE: "500 milliseconds", LEASE: "1 minute" });
      await worker.says(`begun ${id}`);
      await worker.says(`begun ${other}`);
      const begun = Date.now();
      for (const signal of signals) {
        worker.kill(signal);
        await worker.says(signal);
        await pause(between);
      }
      assert.deepEqual(await worker.exited, { code: 0, signal: null });
      assert.ok(Date.now() - begun < 20_000, "it ends without that transaction");
      assert.deepEqual([(await database.task(other)).state, (await database.task(other)).num_tries], ["ready", 0]);
      await database.rows("SELECT taskq.release_tasks(ARRAY[$1])", id);
      await database.rows("SELECT taskq.cancel_tasks($1::text[])", [id, other]);
    });
  }

  test("a handler that is left behind does not end the process while another app of it works", async () => {
    await database.rows("SELECT taskq.insert_task(action, action) FROM unnest('{hasty,patient}'::text[]) AS action");
    const worker = database.worker("two");
    for (const action of ["hasty", "patient"]) await worker.says(`begun ${action}`);
    worker.kill("SIGTERM");
    assert.deepEqual(await worker.exited, { code: 0, signal: null });
    assert.match(worker.output, /stopped\n$/);
    assert.equal((await database.task("patient")).result, "ended");
    const { state, num_tries } = await database.task("hasty");
    assert.deepEqual([state, num_tries], ["ready", 0]);
    await database.rows("SELECT taskq.cancel_tasks('{hasty}')");
  });

  test("a killed worker's tasks are performed by another when their lease ends", async () => {
    const ids = await Promise.all([1, 2, 3].map((n) => insert(`orphan ${n}`, { sleep: 3000 })));
    const killed = database.worker("worker");
    for (const id of ids) await killed.says(`begun ${id}`);
    killed.kill("SIGKILL");
    await killed.exited;
    const heir = database.worker("worker");
    for (const id of ids) {
      const task = await database.until(id, "completed");
      assert.deepEqual([task.num_tries, task.result.by], [2, heir.child.pid]);
    }
    heir.kill("SIGTERM");
    assert.equal((await heir.exited).code, 0);
  });

  test("killed in the middle of a transaction: its rows are there once", async () => {
    const ids = ["b1", "b2", "b3", "b4"];
    for (const id of ids)
      await database.rows("SELECT taskq.insert_task($1, 'booking', $2::jsonb)", id, { sleep: 1000 });
    const killed = database.worker("worker");
    for (const id of ids) await killed.says(`begun ${id}`);
    killed.kill("SIGKILL");
    const heir = database.worker("worker");
    for (const id of ids) await database.until(id, "completed");
    const rows = await database.rows("SELECT id, count(*)::int FROM bookings GROUP BY 1 ORDER BY 1");
    assert.deepEqual(
      rows,
      ids.map((id) => ({ id, count: 1 })),
    );
    heir.kill("SIGTERM");
    await heir.exited;
    await idle();
  });
});
