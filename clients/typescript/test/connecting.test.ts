import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { App } from "taskq-pg";
import { between, pipe } from "./between.js";
import { Database, gate, pause } from "./support.js";

// What is between the app and the server is slow, or not there.
describe("a worker that is stopped before it has a connection", () => {
  let database: Database;
  before(async () => {
    database = await Database.make();
  });
  after(() => database.drop());

  /** It would take five seconds to give up a server that does not answer. */
  const endsAtOnce = async (app: App, working: Promise<void>) => {
    const ended = await Promise.race([app.stop().then(() => true), pause(3000).then(() => false)]);
    await working;
    assert.ok(ended);
  };

  test("ends at once while it connects", async () => {
    const connected = gate();
    const silent = await between(database, () => connected.open());
    const app = database.app({ connectionString: silent.connectionString });
    app.task("any", () => {});
    const working = app.work();
    await connected.promise;
    await endsAtOnce(app, working);
    silent.close();
  });

  test("ends at once while it connects for a claim, and claims nothing", async () => {
    const connected = gate();
    const half = await between(database, (socket, number) => (number === 0 ? pipe(socket) : connected.open()));
    const app = database.app({ connectionString: half.connectionString });
    app.task("any", () => assert.fail("it has been stopped"));
    const id = await database.app().insert("any");
    const working = app.work();
    await connected.promise;
    await endsAtOnce(app, working);
    assert.equal((await database.task(id)).num_tries, 0);
    half.close();
  });

  test("ends at once while it pauses between attempts", async () => {
    const none = await between(database, () => {});
    none.close();
    const paused = gate();
    const warn = (message: string) => void (message.startsWith("no answer") && paused.open());
    const logger = { info() {}, warn, error() {} };
    const app = database.app({ connectionString: none.connectionString, logger });
    app.task("any", () => {});
    const working = app.work();
    await paused.promise;
    await endsAtOnce(app, working);
  });
});
