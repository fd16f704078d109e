import assert from "node:assert/strict";
import { describe, test } from "node:test";
import pg from "pg";
import { App } from "taskq-pg";
import { createTestDatabase, drain, inserted, type TestDatabaseOptions, travel } from "taskq-pg/testing";
import { makeFolder, removeFolder, Server, skip } from "./servers.js";

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

  test("a template is made anew when what it is made of has changed", async () => {
    const tables = async (options: TestDatabaseOptions) => {
      await using database = await createTestDatabase(options);
      const client = new pg.Client(database.connectionString);
      await client.connect();
      const { rows } = await client.query("SELECT relname FROM pg_class WHERE relname ~ '^made_'");
      await client.end();
      return rows.map(({ relname }) => relname);
    };
    // As with migrations in files: the text of the function does not tell what they make.
    let table = "";
    const setup = (client: pg.Client) => client.query(`CREATE TABLE made_${table} ()`);
    for (const version of ["a", "b"]) {
      table = version;
      assert.deepEqual(await tables({ setup, version }), [`made_${version}`]);
    }
  });

  test("a template is of the script that the extension has now", { skip }, async () => {
    const folder = await makeFolder();
    const server = new Server(folder);
    await server.start();
    const host = encodeURIComponent(await server.socket());
    const connectionString = `postgresql:///postgres?host=${host}&user=postgres`;
    const templates = async () => {
      const database = await createTestDatabase({ connectionString });
      await database.drop();
      const rows = await server.query("SELECT FROM pg_database WHERE datname LIKE 'taskq_template_%'");
      return rows.length;
    };
    const { query } = pg.Client.prototype;
    try {
      assert.deepEqual([await templates(), await templates()], [1, 1]);
      // As though another script of the same version had been installed.
      pg.Client.prototype.query = async function (this: pg.Client, ...values: unknown[]) {
        const result = await (query as any).apply(this, values);
        if (String(values[0]).includes("pg_available_extensions")) result.rows[0].script = "another";
        return result;
      } as never;
      assert.equal(await templates(), 2);
    } finally {
      pg.Client.prototype.query = query;
      await server.do("stop");
      await removeFolder(folder);
    }
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
      tasks.map(({ id, body, state, result, priority, groupId }) => [id, body, state, result, priority, groupId]),
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
