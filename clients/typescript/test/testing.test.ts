import assert from "node:assert/strict";
import { describe, test } from "node:test";
import pg from "pg";
import { App } from "taskq-pg";
import { createTestDatabase, drain, inserted, travel } from "taskq-pg/testing";

const silent = { info() {}, warn() {}, error() {} };
const setup = (client: pg.Client) => client.query("CREATE TABLE orders (id int)");

describe("taskq-pg/testing", () => {
  test("databases are copies of a template, made by many at once", async () => {
    const databases = await Promise.all([1, 2, 3].map(() => createTestDatabase({ setup })));
    try {
      assert.equal(new Set(databases.map(({ connectionString }) => connectionString)).size, 3);
      for (const { connectionString } of databases) {
        const client = new pg.Client(connectionString);
        await client.connect();
        assert.equal((await client.query("SELECT count(*)::int FROM orders")).rows[0].count, 0);
        await client.end();
      }
    } finally {
      await Promise.all(databases.map((database) => database.drop()));
    }
    const gone = new pg.Client(databases[0]?.connectionString);
    await assert.rejects(gone.connect(), { code: "3D000" });
  });

  test("drain works and throws what a handler threw; inserted tells what was inserted", async () => {
    await using database = await createTestDatabase();
    await using app = new App({ connectionString: database.connectionString, logger: silent });
    app.task("mail", (to: string) => {
      if (to === "unknown") throw new RangeError("no such person");
      return to.length;
    });
    await app.insert("mail", "ann", { id: "1", priority: 3, groupId: "news" });
    await app.insert("mail", "bob", { id: "2" });
    await drain(app);
    const tasks = await inserted(app, "mail");
    assert.deepEqual(
      tasks.map(({ id, body, state, result, priority, groupId }) => [
        id,
        body,
        state,
        result,
        priority,
        groupId,
      ]),
      [
        ["1", "ann", "completed", 3, 3, "news"],
        ["2", "bob", "completed", 3, 0, null],
      ],
    );
    assert.deepEqual(
      (await inserted(app, "mail", { groupId: "news" })).map(({ id }) => id),
      ["1"],
    );
    assert.deepEqual((await inserted(app, "mail", { id: "2", state: "ready" })).length, 0);
    await app.insert("mail", "unknown");
    await assert.rejects(drain(app), RangeError);
  });

  test("travel moves the queue's clock", async () => {
    await using database = await createTestDatabase();
    await using app = new App({ connectionString: database.connectionString, logger: silent });
    const ran: string[] = [];
    app.task("remind", (name: string) => void ran.push(name));
    await app.insert("remind", "tomorrow", { delay: "1 day" });
    await drain(app);
    assert.deepEqual(ran, []);
    await travel(app, "23 hours");
    await drain(app);
    assert.deepEqual(ran, []);
    await travel(app, "1 hour");
    await drain(app);
    assert.deepEqual(ran, ["tomorrow"]);
  });
});
