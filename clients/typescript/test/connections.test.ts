import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { Database } from "./support.js";

describe("the app's connections", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  test("an insertion that is under way when the worker ends is not cut off", async () => {
    const app = database.app();
    app.task("any", () => {});
    const client = new pg.Client(database.connectionString);
    await client.connect();
    await client.query("BEGIN");
    await client.query("SELECT taskq.insert_task('slow', 'none')");
    const inserting = app.insert("none", null, { id: "slow", onConflict: "skip" });
    await app.work({ untilIdle: true });
    await client.query("ROLLBACK");
    await client.end();
    assert.equal(await inserting, "slow");
  });
});
