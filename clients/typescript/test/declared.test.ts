import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { App } from "taskq-pg";
import { Database, until } from "./support.js";

describe("settings and schedules of the code", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  const stored = async (action: string) =>
    (await database.rows("SELECT * FROM taskq.actions WHERE action = $1", action))[0];
  const schedules = async () =>
    (await database.rows("SELECT name FROM taskq.schedules ORDER BY 1")).map(({ name }) => name);
  /** Works until it is idle, and ends. */
  const starts = async (app: App) => app.work({ untilIdle: true });

  test("are written by setup, and removed by it when the code has them no more", async () => {
    const first = database.app({ name: "shop" });
    first.task(
      "resize",
      {
        maxConcurrency: 4,
        rateLimit: 10,
        ratePeriod: "1 second",
        backoff: { kind: "fixed", initial: "2 seconds" },
      },
      () => {},
    );
    first.task("mail", { maxTries: 3 }, () => {});
    first.schedule("nightly", "0 3 * * *", "resize", { n: 1 }, { priority: 7 });
    first.schedule("hourly", "0 * * * *", "mail");
    await first.setup();
    const { max_concurrency, rate_limit, backoff } = await stored("resize");
    assert.deepEqual([max_concurrency, rate_limit, backoff.initial], [4, 10, "2 seconds"]);
    assert.deepEqual(await schedules(), ["hourly", "nightly"]);
    const kept = await database.task("taskq.app shop");
    assert.deepEqual(
      [kept.action, kept.result],
      [
        "taskq.app",
        {
          version: null,
          settings: {
            mail: ["max_tries"],
            resize: ["backoff", "max_concurrency", "rate_limit", "rate_period"],
          },
          schedules: ["hourly", "nightly"],
        },
      ],
    );

    const second = database.app({ name: "shop" });
    second.task("resize", { rateLimit: 10, ratePeriod: "1 second" }, () => {});
    second.schedule("nightly", "0 3 * * *", "resize", { n: 1 }, { priority: 7 });
    await starts(second);
    const gone =
      'the code no longer has, and setup with prune removes: max_tries of mail; backoff, max_concurrency of resize; schedule "hourly"';
    assert.deepEqual(
      second.lines.map((line) => line.split(/: |; /).sort().join()),
      [gone.split(/: |; /).sort().join()],
    );
    await second.setup({ prune: true });
    const after = await stored("resize");
    assert.deepEqual([after.max_concurrency, after.rate_limit, after.backoff], [null, 10, null]);
    assert.equal((await stored("mail"))?.max_tries ?? null, null);
    assert.deepEqual(await schedules(), ["nightly"]);
    const quiet = database.app({ name: "shop" });
    quiet.task("resize", { rateLimit: 10, ratePeriod: "1 second" }, () => {});
    quiet.schedule("nightly", "0 3 * * *", "resize", { n: 1 }, { priority: 7 });
    await starts(quiet);
    assert.deepEqual(quiet.lines, []);
    await assert.rejects(database.app().setup({ prune: true }), /name the app to prune/);
    await database.rows("SELECT taskq.unschedule('nightly')");
  });

  test("a worker writes what the database lacks, and the rest if its version is higher", async () => {
    const app = (version: string, maxConcurrency: number, cron: string) => {
      const made = database.app({ name: "rolling", version });
      made.task("rolled", { maxConcurrency, maxTries: 5 }, () => {});
      made.schedule("rolled", cron, "rolled");
      return made;
    };
    await database.rows("SELECT taskq.set_action('rolled', max_concurrency => 9)");
    const first = app("1.9", 1, "0 1 * * *");
    await starts(first);
    assert.deepEqual([(await stored("rolled")).max_concurrency, (await stored("rolled")).max_tries], [9, 5]);
    assert.deepEqual(await schedules(), ["rolled"]);
    assert.match(first.lines.join(), /others than the code.*max_concurrency of rolled is 9, here 1/);
    const higher = app("1.10", 2, "0 2 * * *");
    await starts(higher);
    assert.equal((await stored("rolled")).max_concurrency, 2);
    assert.deepEqual(higher.lines, []);
    const lower = app("1.9", 1, "0 1 * * *");
    await starts(lower);
    assert.equal((await stored("rolled")).max_concurrency, 2);
    assert.match(lower.lines.join(), /max_concurrency of rolled is 2, here 1; schedule "rolled"/);
    assert.equal(lower.lines.length, 1);
    await database.rows("SELECT taskq.unschedule('rolled')");
    assert.throws(() => new App({ name: "x", version: "1.x" }), /no integer, and no dotted numbers/);
    assert.throws(() => new App({ version: 1 }), /has a name/);
  });

  test("are left as they are without the rights of an operator", async () => {
    await database.rows("DO $$ BEGIN CREATE ROLE a_worker LOGIN; EXCEPTION WHEN duplicate_object THEN END $$");
    await database.rows("SELECT taskq.grant_worker('a_worker')");
    const app = database.app({ connectionString: undefined, database: database.name, user: "a_worker" });
    app.task("mine", { maxConcurrency: 3 }, () => "done");
    const task = await database.app().insert("mine");
    await starts(app);
    assert.equal(await task.state(), "completed");
    assert.equal((await stored("mine"))?.max_concurrency ?? null, null);
    await assert.rejects(app.setup(), /permission denied.*SELECT taskq.grant_worker/);
  });

  test("a schedule runs by the claims of a worker, without the background worker", async () => {
    await database.rows(`ALTER DATABASE ${database.name} SET taskq.background_worker = off`);
    const app = database.app();
    let runs = 0;
    app.task("each second", () => void runs++);
    app.schedule("each second", "* * * * * *", "each second");
    const working = app.work();
    await until(() => runs >= 2, "two runs");
    await database.rows("SELECT taskq.unschedule('each second')");
    await app.stop();
    await working;
    await database.rows(`ALTER DATABASE ${database.name} RESET taskq.background_worker`);
  });
});
