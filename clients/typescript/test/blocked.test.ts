import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import type { App } from "taskq-pg";
import { between, errorMessage, pipe, READY } from "./between.js";
import { Database, gate, pause, until } from "./support.js";

// What the app and its handlers say may wait for long, and holds up neither returns nor heartbeats.
describe("a worker whose app waits", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  /** In a transaction that is rolled back in the end. */
  const inTransaction = async (statement: string, work: () => Promise<void>) => {
    const client = new pg.Client(database.connectionString);
    await client.connect();
    try {
      await client.query("BEGIN");
      await client.query(statement);
      await work();
      await client.query("ROLLBACK");
    } finally {
      await client.end();
    }
  };
  /** Another transaction inserts these tasks, and stays open. */
  const taking = (ids: string[], work: () => Promise<void>) =>
    inTransaction(`SELECT taskq.insert_task(id, 'none') FROM unnest('{${ids}}'::text[]) AS id`, work);
  const insertEach = (app: App, ids: string[]) => ids.map((id) => app.insert("none", null, { id, onConflict: "skip" }));
  const untilWaiting = (count: number) =>
    until(
      async () =>
        (
          await database.rows(
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
          )
        ).length === count,
      `${count} statements to wait for a lock`,
    );

  /** Tasks with a lease of a second, of which none may be lost. */
  const held = async (app: App, action: string) => {
    const go = gate();
    const thief = database.app();
    const stolen: string[] = [];
    app.task(action, { lease: "1 second" }, () => go.promise);
    thief.task(action, { lease: "1 second" }, (_, task) => void stolen.push(task.id));
    const ids = await database.app().insertMany(action, new Array(20).fill(null));
    const working = app.work({ concurrency: 30 });
    for (const id of ids) await database.until(id, "in-progress");
    const stealing = thief.work();
    return async () => {
      go.open();
      for (const id of ids) await database.until(id, "completed");
      await Promise.all([app.stop(), thief.stop()]);
      await Promise.all([working, stealing]);
      assert.deepEqual(stolen, []);
    };
  };

  test("loses no task and goes on returning when handlers' insertions wait for another transaction", async () => {
    const app = database.app({ application_name: "waits" });
    const connections = () => database.rows("SELECT FROM pg_stat_activity WHERE application_name = 'waits'");
    const ids = ["w1", "w2", "w3"];
    app.task("inserts", () => Promise.all(insertEach(app, ids)));
    app.task("quick", () => "done");
    const allKept = await held(app, "kept");
    let inserting = "";
    await taking(ids, async () => {
      ({ id: inserting } = await database.app().insert("inserts", null));
      await untilWaiting(3); // on a connection each
      for (let n = 0; n < 20; n++) {
        const [id = ""] = await database.app().insertMany("quick", [null]);
        await database.until(id, "completed");
        await pause(200);
      }
    });
    assert.deepEqual((await database.until(inserting, "completed")).result, ids);
    // Of the worker, and one that is kept.
    await until(async () => (await connections()).length === 4, "the connections for moments to be closed");
    await allKept();
  });

  test("loses no task either when a return gets no answer meanwhile", async () => {
    let silent = false;
    const way = await between(database, (socket) => {
      let dead = false;
      pipe(socket, (data) => {
        dead ||= silent && data.includes("return_and_own_tasks");
        return dead ? false : undefined;
      });
    });
    const app = database.app({ connectionString: way.connectionString, query_timeout: 4000 });
    const done = gate();
    app.task("one", () => done.promise.then(() => "done"));
    const [id = ""] = await database.app().insertMany("one", [null]);
    const allKept = await held(app, "kept beside");
    await database.until(id, "in-progress");
    const ids = ["n1", "n2"];
    await taking(ids, async () => {
      const inserting = insertEach(app, ids);
      inserting.forEach((insertion) => {
        insertion.catch(() => {}); // its time is up
      });
      await untilWaiting(2);
      silent = true;
      done.open();
      await pause(3000);
      silent = false;
      assert.equal((await database.until(id, "completed")).num_tries, 1);
    });
    await allKept();
    way.close();
  });

  test("loses no task when its connection is dead without a word", async () => {
    let silent = false;
    const way = await between(database, (socket) => {
      let dead = false;
      pipe(socket, (data) => {
        // The first thing that is said, a return or a heartbeat, and what comes after it.
        if (silent && data.includes("taskq ")) {
          dead = true;
          silent = false;
        }
        return dead ? false : undefined;
      });
    });
    const app = database.app({ connectionString: way.connectionString, query_timeout: 3000 });
    const done = gate();
    app.task("said", () => done.promise.then(() => "done"));
    const [id = ""] = await database.app().insertMany("said", [null]);
    const allKept = await held(app, "kept in silence");
    await database.until(id, "in-progress");
    silent = true; // a heartbeat
    await pause(2000);
    assert.equal(silent, false);
    silent = true; // the return
    done.open();
    await pause(2000);
    assert.equal((await database.until(id, "completed")).num_tries, 1);
    await allKept();
    way.close();
  });

  for (const fails of [false, true]) {
    test(`does not wait for a heartbeat without an answer when it ${fails ? "fails" : "ends"}`, async () => {
      const silent = gate();
      let refusing = false;
      const refusal = Buffer.concat([errorMessage("ERROR", "42501", "no rights"), READY]);
      const way = await between(database, (socket) => {
        let dead = false;
        pipe(socket, (data) => {
          if (data.includes("taskq extend")) {
            dead = true;
            silent.open();
          }
          const refused = refusing && data.includes("taskq own");
          if (refused) socket.write(refusal);
          return dead || refused ? false : undefined;
        });
      });
      const app = database.app({ connectionString: way.connectionString });
      const go = gate();
      // The heartbeat comes after 7 seconds, and waits for 5.
      app.task("silent", { lease: "20 seconds" }, () => go.promise);
      const insert = () => database.app().insert("silent");
      const id = await insert();
      const working = app.work({ untilIdle: !fails });
      const ended = working.then(
        () => "ended",
        (error) => error.message,
      );
      await silent.promise;
      refusing = fails;
      if (fails) await insert();
      else go.open();
      const begun = Date.now();
      assert.equal(await ended, fails ? "no rights" : "ended");
      assert.ok(Date.now() - begun < 3000, "it does not wait for it");
      go.open();
      // What a worker that has failed still has goes back.
      await database.until(id, fails ? "ready" : "completed");
      await database.rows(
        "SELECT taskq.cancel_tasks(ARRAY(SELECT id FROM taskq.tasks WHERE action = 'silent' AND state <> 'completed'))",
      );
      await app.close();
      way.close();
    });
  }

  test("goes on when insertions wait for its handler's transaction, and the handler reports", async () => {
    const app = database.app({ query_timeout: 20_000 });
    const ids = ["h1", "h2", "h3"];
    let inserting: Promise<unknown>[] = [];
    app.task("reports", async (_, task) => {
      await taking(ids, async () => {
        inserting = insertEach(app, ids);
        await task.report({ status: "half" });
      });
    });
    await app.insert("reports");
    await app.work({ untilIdle: true });
    assert.deepEqual((await Promise.all(inserting)).map(String), ids);
  });

  test("saves a step when its connection is free, though another insertion waits", async () => {
    const app = database.app({ query_timeout: 20_000 });
    const go = gate();
    app.workflow("steps", async (ctx) => {
      await go.promise;
      await ctx.step("step", () => "saved");
    });
    const { id } = await app.insert("steps");
    const working = app.work();
    await database.until(id, "in-progress");
    let inserting: Promise<unknown>[] = [];
    await taking(["f2"], async () => {
      await taking(["f1"], async () => {
        inserting = insertEach(app, ["f1", "f2"]);
        go.open();
        await untilWaiting(2);
      });
      await database.until(id, "completed");
    });
    assert.deepEqual((await Promise.all(inserting)).map(String), ["f1", "f2"]);
    await app.stop();
    await working;
  });

  test("ends while insertions wait, and they go on", async () => {
    const app = database.app();
    const ids = ["e1", "e2", "e3"];
    app.task("any", () => {});
    const { id } = await app.insert("any");
    let inserting: Promise<unknown>[] = [];
    await taking(ids, async () => {
      inserting = insertEach(app, ids);
      await app.work({ untilIdle: true });
      assert.equal((await database.task(id)).state, "completed");
    });
    assert.deepEqual((await Promise.all(inserting)).map(String), ids);
  });

  test("ends in time while insertions wait, and returns what it can", async () => {
    const app = database.app();
    app.task("endless", () => new Promise(() => {}));
    const ids = await app.insertMany("endless", [1, 2, 3, 4, 5]);
    const working = app.work();
    for (const id of ids) await database.until(id, "in-progress");
    const [locked, ...free] = ids;
    const taken = ["t1", "t2", "t3"];
    let inserting: Promise<unknown>[] = [];
    await taking(taken, async () => {
      inserting = insertEach(app, taken);
      await untilWaiting(3);
      // The worker tries to return this one until its time is up.
      await inTransaction(`SELECT taskq.cancel_tasks('{${locked}}')`, async () => {
        const begun = Date.now();
        await app.stop({ now: true });
        await working;
        assert.ok(Date.now() - begun < 10_000, "it does not wait for them");
      });
      for (const id of free) {
        const { state, num_tries } = await database.task(id);
        assert.deepEqual([state, num_tries], ["ready", 0]);
      }
      assert.ok(app.lines.some((line) => line.startsWith(`${locked}: not returned`)));
    });
    assert.deepEqual((await Promise.all(inserting)).map(String), taken);
    await database.rows("SELECT taskq.release_tasks(ARRAY[$1])", locked);
    await database.rows("SELECT taskq.cancel_tasks($1)", ids);
  });
});
