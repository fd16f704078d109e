import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { Lost, Reject } from "taskq-pg";
import { Database, gate, pause, until } from "./support.js";

describe("transactions", () => {
  let database: Database;
  let pool: pg.Pool;
  before(async () => {
    database = await Database.make();
    await database.client.query("CREATE TABLE bookings (id text)");
    pool = new pg.Pool({ connectionString: database.connectionString });
  });
  after(async () => {
    await pool.end();
    await database.drop();
  });
  const bookings = async (id: string) => (await database.rows("SELECT FROM bookings WHERE id = $1", id)).length;

  for (const given of ["a pool of its own", "the pool that it was given"]) {
    test(`rows and completion are one, with ${given}`, async () => {
      const app = given === "a pool of its own" ? database.app() : database.app({ pool });
      app.task("book", { transactional: true }, async (_, task, client) => {
        await client.query("INSERT INTO bookings VALUES ($1)", [task.id]);
        assert.equal((await database.task(task.id)).state, "in-progress");
        return { seat: 7 };
      });
      const { id } = await app.insert("book");
      await app.work({ untilIdle: true });
      const { state, result } = await database.task(id);
      assert.deepEqual([state, result, await bookings(id)], ["completed", { seat: 7 }, 1]);
    });
  }

  test("an error takes the rows back", async () => {
    const app = database.app();
    app.task("fails", { transactional: true }, async (n: number, task, client) => {
      await client.query("INSERT INTO bookings VALUES ($1)", [task.id]);
      if (n === 0) throw new Reject("no seat");
      if (n === 1) await client.query("SELECT 1 / 0");
      return n === 2 ? 1n : n === 3 ? "\0" : null;
    });
    const ids = await app.insertMany("fails", [0, 1, 2, 3]);
    await app.work({ untilIdle: true });
    const ends = await Promise.all(ids.map((id) => database.task(id)));
    assert.deepEqual(
      ends.map(({ state }) => state),
      ["aborted", "scheduled", "aborted", "aborted"],
    );
    assert.match(ends[1].status, /division by zero/);
    for (const id of ids) assert.equal(await bookings(String(id)), 0);
  });

  test("a task that was lost takes the rows with it", async () => {
    const app = database.app();
    app.task("lost", { transactional: true }, async (_, task, client) => {
      await client.query("INSERT INTO bookings VALUES ($1)", [task.id]);
      await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", task.id);
    });
    const { id } = await app.insert("lost");
    await app.work({ untilIdle: true });
    assert.deepEqual([(await database.task(id)).state, await bookings(id)], ["aborted", 0]);
  });

  for (const kind of ["a transactional handler", "a step"]) {
    test(`a connection that is lost while ${kind} waits for something else is survived`, async () => {
      const app = database.app();
      const cut = async (numTries: number, client: pg.PoolClient) => {
        const { rows } = await client.query("SELECT pg_backend_pid() AS pid");
        if (numTries > 1) return;
        await database.rows("SELECT pg_terminate_backend($1)", rows[0].pid);
        await pause(300);
      };
      const action = `cut in ${kind}`;
      if (kind === "a step")
        app.workflow(action, (ctx) => ctx.transaction("cut", (client) => cut(ctx.task.numTries, client)));
      else app.task(action, { transactional: true }, (_, task, client) => cut(task.numTries, client));
      const { id } = await app.insert(action, null, {
        backoff: { kind: "fixed", initial: "0 milliseconds" },
      });
      await app.work({ untilIdle: true });
      const { state, num_tries } = await database.task(id);
      assert.deepEqual([state, num_tries], ["completed", 2]);
    });
  }

  test("a task whose completion was rolled back is still held", async () => {
    const app = database.app();
    const thief = database.app();
    const begun: number[] = [];
    app.task("rolled back", { lease: "1 second" }, async (_, task) => {
      begun.push(task.numTries);
      if (task.numTries > 1) return "the second";
      const client = await pool.connect();
      await client.query("BEGIN");
      await task.complete({ client });
      await client.query("ROLLBACK");
      client.release();
      await pause(4000);
      begun.push(0);
    });
    thief.task("rolled back", { lease: "1 second" }, () => assert.fail("it is held"));
    const { id } = await app.insert("rolled back", null, {
      backoff: { kind: "fixed", initial: "0 milliseconds" },
    });
    const working = [app.work({ concurrency: 1 })];
    await database.until(id, "in-progress");
    working.push(thief.work());
    await pause(3000);
    await thief.stop();
    assert.equal((await database.until(id, "completed")).result, "the second");
    assert.deepEqual(begun, [1, 0, 2]);
    await app.stop();
    await Promise.all(working);
  });

  test("a handler completes its task in a transaction of its own", async () => {
    const app = database.app();
    app.task("own", async (commit: boolean, task) => {
      const client = await pool.connect();
      await client.query("BEGIN");
      await client.query("INSERT INTO bookings VALUES ($1)", [task.id]);
      await task.complete({ client, result: "by hand", status: "booked" });
      await client.query(commit || task.numTries > 1 ? "COMMIT" : "ROLLBACK");
      client.release();
      return "not this";
    });
    const { id: good } = await app.insert("own", true);
    const { id: bad } = await app.insert("own", false, {
      backoff: { kind: "fixed", initial: "0 milliseconds" },
    });
    await app.work({ untilIdle: true });
    const { state, result, status, num_tries } = await database.task(good);
    assert.deepEqual([state, result, status, num_tries], ["completed", "by hand", "booked", 1]);
    assert.deepEqual([(await database.task(bad)).state, (await database.task(bad)).num_tries], ["completed", 2]);
    assert.deepEqual([await bookings(good), await bookings(bad)], [1, 1]);
    assert.deepEqual(app.lines, [], "that the first was committed is no news");
  });

  test("a transactional handler may complete its task itself", async () => {
    const app = database.app();
    app.task("itself", { transactional: true }, async (_, task, client) => {
      await client.query("INSERT INTO bookings VALUES ($1)", [task.id]);
      await task.complete({ client, result: "by hand" });
      return "not this";
    });
    const { id } = await app.insert("itself");
    await app.work({ untilIdle: true });
    const { state, result, num_tries } = await database.task(id);
    assert.deepEqual([state, result, num_tries, await bookings(id)], ["completed", "by hand", 1, 1]);
    assert.deepEqual(app.lines, []);
  });

  for (const options of [{}, { transactional: true }] as const) {
    const kind = "transactional" in options ? "transactional" : "plain";
    test(`a refusal of another task is an error of the ${kind} handler, one of its own is none`, async () => {
      const app = database.app();
      const heard: string[] = [];
      app.task(`${kind} other`, options as { transactional: true }, async () => {
        await database.rows("SELECT taskq.return_task('no such task', gen_random_uuid())");
      });
      app.task(`${kind} own`, options as { transactional: true }, async (_, task) => {
        await database.rows("SELECT taskq.cancel_tasks(ARRAY[$1])", task.id);
        await task.report({ progress: 0.5 }).catch((error) => {
          assert.ok(error instanceof Lost);
          throw error;
        });
      });
      await app.insert(`${kind} other`, null, { id: `${kind} other` });
      await app.insert(`${kind} own`);
      await app.work({ untilIdle: true, onError: (_, task) => heard.push(task.action) });
      assert.deepEqual(heard, [`${kind} other`]);
      assert.equal((await database.task(`${kind} other`)).state, "scheduled");
      assert.ok(app.lines.some((line) => line.startsWith(`${kind} other`)));
    });
  }

  test("a handler whose commit is under way has not lost its task", async () => {
    const app = database.app();
    const told: unknown[] = [];
    app.task("slow commit", { lease: "600 milliseconds", transactional: true }, async (_, task, client) => {
      // The server commits, and its answer comes late.
      const { query } = client;
      client.query = (async (...values: unknown[]) => {
        const result = await (query as any).apply(client, values);
        if (values[0] === "COMMIT") await pause(1500);
        return result;
      }) as never;
      task.signal.addEventListener("abort", () => told.push(task.signal.reason));
    });
    const { id } = await app.insert("slow commit");
    await app.work({ untilIdle: true });
    assert.equal((await database.task(id)).num_tries, 1);
    assert.deepEqual([told, app.lines], [[], []]);
  });

  test("the heartbeat does not wait for completions that are not committed yet, however many", async () => {
    const app = database.app();
    const count = 400;
    const client = await pool.connect();
    await client.query("BEGIN");
    const committed = gate();
    let completing = 0;
    let completed = Promise.resolve();
    app.task("open", { lease: "15 seconds" }, async (_, task) => {
      completed = completed.then(() => task.complete({ client }));
      await completed;
      completing++;
      await committed.promise;
    });
    app.task("beside", { lease: "15 seconds" }, () => committed.promise);
    const { id: beside } = await app.insert("beside", null, { priority: 1 });
    const open = await app.insertMany("open", new Array(count).fill(null));
    const working = [app.work({ concurrency: count + 1 })];
    const thief = database.app();
    try {
      await until(() => completing === count, "the completions");
      thief.task("beside", () => assert.fail("it is held"));
      working.push(thief.work());
      const deadline = async () => (await database.task(beside)).action_deadline.getTime();
      for (let beat = 0; beat < 2; beat++) {
        const before = await deadline();
        await until(async () => (await deadline()) > before, "a heartbeat");
      }
    } finally {
      // Else the workers do not end.
      await client.query("COMMIT");
      client.release();
      committed.open();
    }
    for (const id of [beside, ...open]) await database.until(id, "completed");
    assert.equal((await database.task(beside)).num_tries, 1);
    await Promise.all([app.stop(), thief.stop()]);
    await Promise.all(working);
  });
});
