import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Database } from "./support.js";

describe("a process that ends by an error", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  for (const how of ["timer", "rejection"]) {
    test(`of a ${how} gives back what is in hand, and that of the handler as a failed try`, async () => {
      const innocent = await database.app().insert("innocent", null, { id: `innocent ${how}` });
      const worker = database.worker("crash", { HOW: how });
      await worker.says("begun innocent");
      const poison = await database.app().insert("poison", null, { id: `poison ${how}` });
      await worker.says("begun poison");
      const exited = await worker.exited;
      assert.deepEqual([exited.code, exited.signal], [1, null], worker.output);
      assert.match(worker.output, new RegExp(`ends by an error in poison "poison ${how}"`));
      assert.match(worker.output, /Error: poison\n +at /);
      assert.doesNotMatch(worker.output, /not reached/);
      const [kept, failed] = [await database.task(innocent), await database.task(poison)];
      assert.deepEqual([kept.state, kept.num_tries], ["ready", 0]);
      assert.deepEqual([failed.state, failed.num_tries, failed.status], ["scheduled", 1, "Error: poison"]);
      await database.rows("SELECT taskq.cancel_tasks($1)", [innocent.id, poison.id]);
    });
  }

  test("that the program heeds goes on, and so does the worker", async () => {
    const poison = await database.app().insert("poison", null, { id: "poison heeded" });
    const worker = database.worker("crash", { HOW: "heeded" });
    await worker.says("heeded poison");
    const innocent = await database.app().insert("innocent", null, { id: "innocent beside" });
    await worker.says("begun innocent");
    worker.kill("SIGTERM");
    worker.kill("SIGTERM");
    await database.rows("SELECT taskq.cancel_tasks($1)", [innocent.id, poison.id]);
  });
});
