import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import knex from "knex";
import { Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import postgres from "postgres";
import type { App } from "taskq-pg";
import { drain } from "taskq-pg/testing";
import { Database } from "./support.js";

describe("insertion", () => {
  let database: Database;
  let app: App;
  before(async () => {
    database = await Database.make();
    app = database.app();
    await database.client.query("CREATE TABLE orders (customer text)");
  });
  after(() => database.drop());

  test("every key reaches the queue under its name", async () => {
    await app.insert("none", null, { id: "first" });
    const { id } = await app.insert(
      "keys",
      { a: 1 },
      {
        id: "all keys",
        priority: 7,
        maxTries: 3,
        lease: "90000 milliseconds",
        delay: "1 hour",
        dependsOn: [{ id: "first", condition: "settled" }],
        groupId: "g",
        workgroup: "w",
        mergeKey: "m",
        seed: true,
        backoff: { kind: "fixed", initial: "2000 milliseconds", jitter: 0.5 },
        retention: { completed: "1 day", aborted: "1 minute" },
        metadata: { by: "ann" },
        postResult: true,
      },
    );
    const task = await database.task(id);
    assert.equal(id, "all keys");
    assert.deepEqual(
      [task.priority, task.max_tries, task.group_id, task.workgroup, task.merge_key, task.metadata, task.state],
      [7, 3, "g", "w", "m", { by: "ann" }, "blocked"],
    );
    assert.equal(task.total_dependencies, 1);
    assert.equal(task.lease.minutes * 60 + (task.lease.seconds ?? 0), 90);
    assert.deepEqual(task.backoff, { kind: "fixed", initial: "2000 milliseconds", jitter: 0.5 });
  });

  test("what is inserted is what the handler gets", async () => {
    const bodies = [
      { a: [1, null, "x"] },
      "plain text",
      '{"text": "that is JSON"}',
      "42",
      42,
      true,
      "null",
      null,
      [],
      "",
      "ü \ud83d\ude00",
    ];
    const got: unknown[] = [];
    const mirror = database.app();
    mirror.task("mirror", (body) => void got.push(body));
    await mirror.insertMany("mirror", bodies);
    await drain(mirror, { concurrency: 1 });
    assert.deepEqual(got, bodies);
    const [{ body }] = await database.rows(
      "SELECT body FROM taskq.tasks WHERE action = 'mirror' AND body LIKE 'plain%'",
    );
    assert.equal(body, "plain text", "a text is stored as it is, for workers in other languages");
  });

  test("what becomes a text in JSON is that text", async () => {
    const number = { toJSON: () => "42" };
    const object = { toJSON: (key: string) => ({ key }) };
    const got: unknown[] = [];
    const mirror = database.app();
    mirror.task("texts", (body) => void got.push(body));
    await mirror.insertMany("texts", [number, new String("true"), new Date(0), object]);
    await drain(mirror, { concurrency: 1 });
    assert.deepEqual(got, ["42", "true", "1970-01-01T00:00:00.000Z", { key: "body" }]);
  });

  test("a refusal is thrown, and nothing is inserted", async () => {
    const dependsOn = ["no such task"];
    await assert.rejects(app.insert("refused", null, { dependsOn }), { code: "TQ003" });
    await assert.rejects(app.insertTasks([{ action: "refused" }, { action: "refused", colour: "red" } as never]), {
      code: "TQ006",
      message: /colour/,
    });
    assert.deepEqual(await database.states("refused"), {});
  });

  test("an id that exists is refused, or skipped", async () => {
    await app.insert("twice", 1, { id: "once" });
    await assert.rejects(app.insert("twice", 2, { id: "once" }), { code: "TQ002" });
    const skipped = await app.insert("twice", 2, { id: "once", onConflict: "skip" });
    assert.deepEqual([skipped.id, skipped.inserted], ["once", false]);
    const [holder] = await app.insertMany("twice", [3], { uniqueBy: "key" });
    const kept = await app.insert("twice", 4, { uniqueBy: { key: "key", onConflict: "skip" } });
    assert.deepEqual([kept.id, kept.inserted, holder?.inserted], [holder?.id, false, true]);
  });

  test("a graph in one call", async () => {
    const ids = await app.insertTasks([
      { id: "bake", action: "graph", dependsOn: ["mix"] },
      { id: "mix", action: "graph" },
    ]);
    assert.deepEqual(ids.map(String), ["bake", "mix"]);
    assert.equal((await database.task("bake")).state, "blocked");
  });

  // Each way: the task and the row of one transaction are there together, or not at all.
  const ways: Record<string, (work: (tx: any, row: string) => Promise<void>) => Promise<void>> = {
    async pg(work) {
      const pool = new pg.Pool({ connectionString: database.connectionString });
      const client = await pool.connect();
      try {
        await client.query("BEGIN");
        await work(client, "pg");
        await client.query("COMMIT");
      } catch (error) {
        await client.query("ROLLBACK");
        throw error;
      } finally {
        client.release();
        await pool.end();
      }
    },
    async drizzle(work) {
      const pool = new pg.Pool({ connectionString: database.connectionString });
      await drizzle({ client: pool })
        .transaction(async (tx) => {
          await tx.execute(sql`INSERT INTO orders VALUES ('drizzle')`);
          await work(tx, "");
        })
        .finally(() => pool.end());
    },
    async knex(work) {
      const db = knex({ client: "pg", connection: database.connectionString });
      await db.transaction(async (trx) => work(trx, "knex")).finally(() => db.destroy());
    },
    async kysely(work) {
      const pool = new pg.Pool({ connectionString: database.connectionString });
      const db = new Kysely<any>({ dialect: new PostgresDialect({ pool }) });
      await db
        .transaction()
        .execute(async (trx) => {
          await trx.insertInto("orders").values({ customer: "kysely" }).execute();
          await work(trx, "");
        })
        .finally(() => db.destroy());
    },
    async "postgres.js"(work) {
      const db = postgres({ database: database.name }); // the rest is in PGHOST and its like
      await db.begin((tx) => work(tx, "postgres.js")).finally(() => db.end());
    },
  };
  for (const [name, transaction] of Object.entries(ways)) {
    test(`in a transaction of ${name}`, async () => {
      const write = async (tx: any, row: string) => {
        if (row === "") return;
        const text = `INSERT INTO orders VALUES ('${row}')`;
        await (tx.query?.(text) ?? tx.raw?.(text) ?? tx.unsafe(text));
      };
      const body = { quote: 'it\'s \\ "quoted" ? $1' };
      await transaction(async (client, row) => {
        await write(client, row);
        const handle = await app.insert("orm", body, { id: `${name} 1`, client });
        assert.deepEqual([handle.id, handle.inserted], [`${name} 1`, true]);
        assert.equal(await database.task(`${name} 1`), undefined, "it is not committed yet");
      });
      assert.deepEqual(JSON.parse((await database.task(`${name} 1`)).body), body);
      const rolledBack = transaction(async (client) => {
        await app.insert("orm", body, { id: `${name} 2`, client });
        throw new Error("changed my mind");
      });
      await assert.rejects(rolledBack, /changed my mind/);
      assert.equal(await database.task(`${name} 2`), undefined);
      assert.equal((await database.rows("SELECT FROM orders WHERE customer = $1", name)).length, 1);
    });
  }

  test("in a transaction of Prisma, by the one method that is called of it", async () => {
    const client = {
      $queryRawUnsafe: async (text: string, ...values: unknown[]) => (await database.client.query(text, values)).rows,
    };
    assert.equal((await app.insert("orm", 1, { id: "prisma", client })).id, "prisma");
  });

  test("a client that is none is told so", async () => {
    await assert.rejects(app.insert("orm", 1, { client: {} as never }), TypeError);
  });

  test("an idle app keeps no process alive, and survives the loss of its connection", async () => {
    await app.insert("alive", 1);
    await database.rows(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'taskq-pg' AND datname = current_database()",
    );
    // The first one may meet the dead connection; it is not repeated, since it may have been committed.
    await app.insert("alive", 2).catch(() => {});
    await app.insert("alive", 3);
    const program = database.worker("inserts");
    assert.deepEqual(await program.exited, { code: 0, signal: null });
    assert.equal((await database.task("from a program")).state, "ready");
  });
});
