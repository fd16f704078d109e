import assert from "node:assert/strict";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { App } from "taskq-pg";
import { Forwarder, makeFolder, removeFolder, Server, silent, skip } from "./servers.js";
import { gate, pause, until } from "./support.js";

const INSERTS = 400;

// A connection string of pg names one host. So what clients connect to is a forwarder, and it is turned to the standby.
describe("the primary is lost, and its standby promoted", { skip }, () => {
  let folder: string;
  let primary: Server;
  let standby: Server;
  let forwarder: Forwarder;
  let app: App;

  beforeEach(async () => {
    folder = await makeFolder();
    primary = new Server(join(folder, "primary"));
    await primary.start();
    await primary.query("CREATE EXTENSION taskq");
    standby = await primary.standby(join(folder, "standby"));
    forwarder = await Forwarder.to(primary);
    app = new App({ connectionString: forwarder.connectionString, logger: silent });
  });
  afterEach(async () => {
    await app?.close();
    forwarder?.close();
    await primary.do("stop");
    await standby?.do("stop");
    await removeFolder(folder);
  });

  const replication = (condition: string, what: string) =>
    until(async () => (await primary.query(`SELECT FROM pg_stat_replication WHERE ${condition}`)).length === 1, what);

  /** Have each commit wait for the standby: what has been answered is there after the failover. */
  async function replicateEachCommit(): Promise<void> {
    await primary.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
    await primary.query("ALTER SYSTEM SET synchronous_commit = 'remote_apply'");
    await primary.query("SELECT pg_reload_conf()");
    await replication("sync_state = 'sync'", "the standby to be synchronous");
  }

  /** Cut the stream: what the primary commits from now on is lost with it. */
  async function replicateNoMore(): Promise<void> {
    await replication("replay_lsn >= pg_current_wal_lsn()", "the standby to have all");
    await standby.query("ALTER SYSTEM SET primary_conninfo = ''");
    await standby.query("SELECT pg_reload_conf()");
    await until(async () => (await primary.query("SELECT FROM pg_stat_replication")).length === 0, "the cut");
  }

  /** A producer that is not told of a failover: it repeats what was not answered, under the same id. */
  async function insertAll(inserted: Set<number>): Promise<void> {
    for (let n = 0; n < INSERTS; n++) {
      while (!inserted.has(n)) {
        try {
          await app.insert("quick", n, { id: `n ${n}`, onConflict: "skip" });
          inserted.add(n);
        } catch {
          await pause(100);
        }
      }
    }
  }

  test("what was inserted is performed, and what is in hand arrives", async () => {
    await replicateEachCommit();
    const go = gate();
    const begun = gate();
    const performed = new Set<number>();
    const inserted = new Set<number>();
    app.task("slow", () => {
      begun.open();
      return go.promise.then(() => "kept");
    });
    app.task<number>("quick", { lease: "2 seconds" }, (n) => void performed.add(n));
    await app.insert("slow", null, { id: "slow", maxTries: 1 });
    const working = app.work();
    await begun.promise;
    const producing = insertAll(inserted);
    await until(() => inserted.size > INSERTS / 4, "insertions");
    await primary.do("stop-now");
    await forwarder.turnTo(standby);
    await pause(500); // clients meet a server that is read-only (25006)
    await standby.query("SELECT pg_promote()");
    await producing;
    go.open();
    await until(
      async () => (await standby.query("SELECT FROM taskq.tasks WHERE state <> 'completed'")).length === 0,
      "all tasks to be performed",
    );
    assert.equal(performed.size, INSERTS);
    const [slow] = await standby.query("SELECT result, num_tries FROM taskq.tasks WHERE id = 'slow'");
    assert.deepEqual(slow, { result: "kept", num_tries: 1 });
    assert.deepEqual(await standby.query("SELECT * FROM taskq.check()"), []);
    await app.stop();
    await working;
  });

  test("a claim that the standby never saw is refused, and made again", async () => {
    const go = gate();
    let runs = 0;
    app.task("slow", () => {
      const run = ++runs;
      return go.promise.then(() => run);
    });
    await app.insert("slow", null, { id: "slow" });
    await replicateNoMore();
    const working = app.work();
    await until(() => runs === 1, "the claim");
    await primary.do("stop-now");
    await forwarder.turnTo(standby);
    await standby.query("SELECT pg_promote()");
    // The first run still goes on here: until it has ended, what is granted goes back.
    await until(
      async () => (await standby.query("SELECT FROM taskq.tasks WHERE id = 'slow' AND num_releases > 0")).length === 1,
      "the claim from the standby",
    );
    assert.equal(runs, 1);
    go.open();
    await until(() => runs === 2, "the second run");
    const completed = "SELECT result, num_tries FROM taskq.tasks WHERE id = 'slow' AND state = 'completed'";
    await until(async () => (await standby.query(completed)).length === 1, "the result");
    // The first run was a try on the lost primary only, and its return is refused.
    assert.deepEqual(await standby.query(completed), [{ result: 2, num_tries: 1 }]);
    await app.stop();
    await working;
  });
});
