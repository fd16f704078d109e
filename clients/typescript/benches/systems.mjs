// The systems that are compared: each inserts no-op tasks, works them off in this process, and is told when one runs.
import pg from "pg";

const quiet = () => {};

export const systems = {
  taskq: taskq(() => ({})),
  "taskq with prefetch": taskq((concurrency) => ({ prefetch: Math.max(concurrency, 50) })),
  // As it comes, and with what its page on performance says: a local queue, and completions in batches.
  "graphile-worker": graphile(() => ({})),
  "graphile-worker tuned": graphile((concurrency) => ({
    localQueue: { size: Math.max(2 * concurrency, 50) },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  })),
  // A worker that fetches a batch, and fetches again at once while batches are full. Single jobs are polled for, twice a second.
  "pg-boss batches": pgBoss((concurrency) => ({ batchSize: Math.max(concurrency, 10), burstWhenBatchFull: true })),
};

function taskq(options) {
  return {
    async open(connectionString, concurrency, onTask) {
      const { App } = await import("taskq-pg");
      const app = new App({ connectionString, logger: { info: quiet, warn: console.error, error: console.error } });
      app.task("noop", onTask);
      return {
        insert: (count) => app.insertMany("noop", new Array(count).fill(null)),
        start() {
          this.working = app.work({ concurrency, signals: false, ...options(concurrency) });
        },
        async stop() {
          await app.close();
          await this.working;
        },
      };
    },
    prepare: (client) => client.query("CREATE EXTENSION taskq"),
  };
}

function graphile(options) {
  return {
    async open(connectionString, concurrency, onTask) {
      const { Logger, makeWorkerUtils, run } = await import("graphile-worker");
      const logger = new Logger(() => quiet);
      const utils = await makeWorkerUtils({ connectionString, logger });
      let runner;
      return {
        insert: (count) => utils.addJobs(new Array(count).fill({ identifier: "noop", payload: {} })),
        async start() {
          const preset = { worker: { connectionString, concurrentJobs: concurrency, maxPoolSize: concurrency + 2, ...options(concurrency) } };
          runner = await run({ preset, logger, noHandleSignals: true, taskList: { noop: async () => onTask() } });
        },
        async stop() {
          await runner?.stop();
          await utils.release();
        },
      };
    },
    async prepare(_client, connectionString) {
      const { Logger, makeWorkerUtils } = await import("graphile-worker");
      const utils = await makeWorkerUtils({ connectionString, logger: new Logger(() => quiet) });
      await utils.migrate();
      await utils.release();
    },
  };
}

function pgBoss(options) {
  const make = async (connectionString, concurrency = 1) => {
    const { PgBoss } = await import("pg-boss");
    const boss = new PgBoss({ connectionString, max: Math.min(concurrency + 2, 30), useListenNotify: true, supervise: false, schedule: false });
    boss.on("error", (error) => console.error(error.message));
    await boss.start();
    await boss.createQueue("noop", { notify: true }).catch(() => {});
    return boss;
  };
  return {
    async open(connectionString, concurrency, onTask) {
      const boss = await make(connectionString, concurrency);
      return {
        insert: (count) => boss.insert("noop", new Array(count).fill({ data: {} })),
        start: () =>
          boss.work("noop", { pollingIntervalSeconds: 0.5, ...options(concurrency) }, async (jobs) => {
            for (const _ of jobs) onTask();
          }),
        stop: () => boss.stop({ graceful: false }),
      };
    },
    async prepare(_client, connectionString) {
      const boss = await make(connectionString);
      await boss.stop({ graceful: false });
    },
  };
}

/** A database of its own for each system. */
export async function makeDatabase(name) {
  const admin = new pg.Client({ database: "postgres" });
  await admin.connect();
  const database = `bench_${name.replace(/\W+/g, "_")}`;
  await admin.query(`DROP DATABASE IF EXISTS ${database} WITH (FORCE)`);
  await admin.query(`CREATE DATABASE ${database}`);
  await admin.end();
  const { PGHOST = "localhost", PGPORT = "5432", PGUSER = "postgres" } = process.env;
  const connectionString = `postgresql:///${database}?host=${encodeURIComponent(PGHOST)}&port=${PGPORT}&user=${PGUSER}`;
  const client = new pg.Client(connectionString);
  await client.connect();
  await systems[name].prepare(client, connectionString);
  await client.end();
  return connectionString;
}
