import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import pg from "pg";
import { COLUMN_TYPES } from "./column-types.js";
import { encodeTask, inMilliseconds, interval } from "./encode.js";
import type { Environment } from "./environment.js";
import {
  type ActionOptions,
  durable,
  type Handler,
  type HandlerOptions,
  plain,
  type Registered,
  register,
  type TransactionalHandler,
  transactional,
  type Workflow,
} from "./handlers.js";
import { Link } from "./link.js";
import { OwnPool, surviveLosses } from "./pool.js";
import { stopOnSignals } from "./process.js";
import { runOn } from "./queryable.js";
import { LONGEST_SLEEP, Queue } from "./queue.js";
import { tracedInsert } from "./telemetry.js";
import type {
  Action,
  Duration,
  InsertCall,
  Logger,
  NewTask,
  Queryable,
  ScheduleOptions,
  Settled,
  TaskOptions,
  WorkOptions,
} from "./types.js";
import { Worker } from "./worker.js";

/** Where the queue is, and what the app is called there. */
export interface AppOptions extends pg.ClientConfig {
  /**
   * A pool for transactional handlers and the transactions of workflows. Where it leads to is where the app's own
   * connections lead. Absent: the app makes one when it needs it.
   */
  pool?: pg.Pool;
  /** The name under which tasks are owned, for people. Host and process id, and something random. */
  actor?: string;
  /** Prepare the statements of the worker. PgBouncer before 1.21 in transaction mode knows none. True. */
  preparedStatements?: boolean;
  /** Where to say what happens. Standard error. */
  logger?: Logger;
}

const STDERR: Logger = {
  info: (message) => console.error(`taskq: ${message}`),
  warn: (message) => console.error(`taskq: ${message}`),
  error: (message) => console.error(`taskq: ${message}`),
};

/** Longer than any sleep of a claim. What takes longer than this is taken for a server that has vanished. */
const QUERY_TIMEOUT = 60_000;

/**
 * The tasks of one database: inserts them, and performs those whose actions are registered. It connects when it is first
 * used. An idle app keeps no process alive.
 */
export class App {
  readonly #config: pg.ClientConfig;
  readonly #actor: string;
  readonly #log: Logger;
  readonly #prepare: boolean;
  readonly #timeout: number;
  /** What is sent without `client`, and what the worker says but its claims. */
  readonly #link: Link;
  readonly #actions = new Map<string, Registered>();
  readonly #givenPool: pg.Pool | undefined;
  #ownPool: OwnPool | undefined;
  #worker: Worker | undefined;
  #working: Promise<void> | undefined;
  /** Workers that have failed, and still return what was in hand. */
  readonly #failed = new Set<Worker>();

  /** With a connection string, the options of a client of pg, or a pool; with nothing, `PGHOST` and its like count. */
  constructor(options: string | AppOptions = {}) {
    const {
      pool,
      actor,
      logger,
      preparedStatements = true,
      ...config
    } = typeof options === "string" ? { connectionString: options } : options;
    this.#givenPool = pool;
    if (pool) surviveLosses(pool);
    // The password of a pool is not enumerable.
    this.#config = pool ? { ...pool.options, password: pool.options.password, ...config } : config;
    this.#actor = actor ?? `${hostname()}:${process.pid}:${randomBytes(3).toString("hex")}`;
    this.#log = logger ?? STDERR;
    this.#prepare = preparedStatements;
    this.#timeout = config.query_timeout ?? pool?.options.query_timeout ?? QUERY_TIMEOUT;
    const timeout = this.#timeout;
    this.#link = new Link(this.#make, this.#log, { prepare: preparedStatements, spare: true, timeout });
  }

  // --- registering ---------------------------------------------------------------------------------------------------

  /** Registers the handler of an action. With `transactional`, it runs inside the transaction that completes the task. */
  task<Body = any, Result = unknown>(action: string, handler: Handler<Body, Result>): Action<Body>;
  task<Body = any, Result = unknown>(
    action: string,
    options: HandlerOptions<Body> & { transactional: true },
    handler: TransactionalHandler<Body, Result>,
  ): Action<Body>;
  task<Body = any, Result = unknown>(
    action: string,
    options: HandlerOptions<Body> & { transactional?: false },
    handler: Handler<Body, Result>,
  ): Action<Body>;
  task(action: string, ...rest: any[]): Action<any> {
    const [options, handler] = rest.length === 1 ? [{}, rest[0]] : rest;
    const perform = options.transactional
      ? transactional(handler, options.schema)
      : plain(handler as Handler<any, unknown>, options.schema);
    return this.#register(register(action, options, { perform }));
  }

  /** Registers a workflow: a function that is left while it waits, and entered again. */
  workflow<Body = any, Result = unknown>(action: string, workflow: Workflow<Body, Result>): Action<Body>;
  workflow<Body = any, Result = unknown>(
    action: string,
    options: ActionOptions<Body>,
    workflow: Workflow<Body, Result>,
  ): Action<Body>;
  workflow(action: string, ...rest: any[]): Action<any> {
    const [options, workflow] = rest.length === 1 ? [{}, rest[0]] : rest;
    const perform = durable(workflow as Workflow<any, unknown>, options.schema);
    return this.#register(register(action, options, { perform, results: true, steps: true }));
  }

  #register(registered: Registered): Action<any> {
    const { action } = registered;
    if (this.#actions.has(action)) throw new Error(`action "${action}" is registered twice`);
    this.#actions.set(action, registered);
    return {
      action,
      insert: (body, options) => this.insert(action, body, options),
      insertMany: (bodies, options) => this.insertMany(action, bodies, options),
    };
  }

  // --- inserting -----------------------------------------------------------------------------------------------------

  /** Inserts a task and returns its id: `null` where another task with this id, or this unique key, has kept it out. */
  async insert(
    action: string,
    body: unknown,
    options: TaskOptions &
      InsertCall &
      ({ onConflict: "skip" } | { uniqueBy: NonNullable<TaskOptions["uniqueBy"]> }),
  ): Promise<string | null>;
  async insert(action: string, body?: unknown, options?: TaskOptions & InsertCall): Promise<string>;
  async insert(
    action: string,
    body?: unknown,
    options: TaskOptions & InsertCall = {},
  ): Promise<string | null> {
    const [id = null] = await this.insertMany(action, [body], options);
    return id;
  }

  /** Inserts a task for each body, all or none, and returns the ids of those inserted, in the order given. */
  insertMany(action: string, bodies: unknown[], options: TaskOptions & InsertCall = {}): Promise<string[]> {
    const { client, onConflict, ifMissing, ...keys } = options;
    return this.insertTasks(
      bodies.map((body) => ({ ...keys, action, body })),
      { client, onConflict, ifMissing },
    );
  }

  /** Inserts tasks, all or none, and returns the ids of those inserted, in the order given. They may depend on each other. */
  insertTasks(tasks: NewTask[], { client, onConflict, ifMissing }: InsertCall = {}): Promise<string[]> {
    return tracedInsert(
      tasks.map((task) => task.action),
      async () => {
        const rows = await this.#run(
          client,
          "SELECT taskq.insert_tasks($1::text::jsonb, on_conflict => $2::text, if_missing => $3::text) AS id",
          [JSON.stringify(tasks.map(encodeTask)), onConflict ?? "error", ifMissing ?? "error"],
        );
        return rows.map((row) => row.id);
      },
    );
  }

  /**
   * Gives a signal: whatever waits for it goes on. Returns whether this call has given it; the first one wins. It may come
   * before anything waits for it.
   */
  async signal(
    id: string,
    result?: unknown,
    options: { status?: string; action?: string; retention?: Duration; client?: Queryable } = {},
  ): Promise<boolean> {
    const [row] = await this.#run(
      options.client,
      `SELECT taskq.signal($1::text, $2::text::jsonb, $3::text, coalesce($4::text, 'signal'), $5::text::interval) AS given`,
      [
        id,
        result === undefined ? null : JSON.stringify(result),
        options.status ?? null,
        options.action ?? null,
        options.retention === undefined ? null : interval(options.retention),
      ],
    );
    return row.given;
  }

  /**
   * Makes a schedule, or changes the one with this name, and returns when it runs next: `null` if it is paused. That is an
   * operator's right.
   */
  async schedule(
    name: string,
    cron: string,
    task: NewTask,
    options: ScheduleOptions = {},
  ): Promise<Date | null> {
    const { timezone = "UTC", overlap = "skip", backfill = "one", client } = options;
    const [row] = await this.#run(
      client,
      `SELECT ${inMilliseconds("next")} AS next FROM taskq.schedule($1::text, $2::text, $3::text::jsonb, timezone => $4::text, overlap => $5::text,
                             backfill => $6::text) AS next`,
      [
        name,
        cron,
        JSON.stringify({ ...encodeTask(task), metadata: task.metadata }),
        timezone,
        overlap,
        backfill,
      ],
    );
    return row.next === null ? null : new Date(Number(row.next));
  }

  /**
   * Waits until a task is settled, and tells how it has ended; `undefined` if the time is up first (10 seconds). It opens a
   * connection for that: a call that sleeps would hold up whatever else is on the same one.
   */
  async waitForTask<Result = unknown>(
    id: string,
    { timeout = "10 seconds" }: { timeout?: Duration } = {},
  ): Promise<Settled<Result> | undefined> {
    // However long it sleeps, that is no sign of a server that has vanished.
    const link = new Link(this.#make, this.#log, { timeout: 0 });
    try {
      const [{ left, longest }] = await link.query(
        `SELECT (1000 * extract(epoch FROM $1::interval))::bigint AS left,
                (1000 * extract(epoch FROM ${LONGEST_SLEEP}))::bigint AS longest`,
        [interval(timeout)],
      );
      for (const end = Date.now() + left; ; ) {
        // A statement that sleeps for longer than the server allows would be ended each time.
        const wait = Math.max(Math.min(end - Date.now(), longest ?? left), 0);
        const [row] = await link.query(
          `SELECT task_id, status_code, status, result, ${inMilliseconds("settled_at")} AS settled_at
             FROM taskq.wait_for_task($1, $2)`,
          [id, interval(wait)],
        );
        if (row) {
          const { task_id, status_code, status, result, settled_at } = row;
          return {
            taskId: task_id,
            statusCode: status_code,
            status,
            result,
            settledAt: new Date(settled_at),
          };
        }
        if (Date.now() >= end) return undefined;
      }
    } finally {
      await link.close();
    }
  }

  /** A statement in the caller's transaction, or on the app's own connection. It is sent once: an insertion is not repeated. */
  #run(client: Queryable | undefined, text: string, values: (string | null)[]): Promise<any[]> {
    return client ? runOn(client, text, values) : this.#link.query(text, values);
  }

  // --- working -------------------------------------------------------------------------------------------------------

  /**
   * Performs tasks until {@link stop} is called, or SIGTERM or SIGINT comes, or with `untilIdle` until there is nothing to
   * do. Lost connections, restarts and failovers of the server are survived; an error that no repetition mends, of rights
   * for instance, is thrown.
   */
  async work(options: WorkOptions = {}): Promise<void> {
    if (this.#working) throw new Error("this app works already");
    const worker = this.#newWorker(options);
    const signals = options.signals === false ? undefined : stopOnSignals(worker, this.#log);
    this.#worker = worker;
    this.#working = worker.run();
    try {
      await this.#working;
    } finally {
      this.#worker = undefined;
      this.#working = undefined;
      if (worker.holds) this.#failed.add(worker);
      if (worker.abandoned) await this.#closePool();
      signals?.end();
    }
  }

  /** What a handler that has not ended holds of the pool is held for ever. A later transaction makes a new pool. */
  async #closePool(): Promise<void> {
    const pool = this.#ownPool;
    this.#ownPool = undefined;
    await pool?.close();
  }

  /** Stops {@link work}: no more is claimed, and what runs has the grace to end. Resolves when the worker has ended. */
  async stop({ now = false }: { now?: boolean } = {}): Promise<void> {
    const working = this.#working;
    this.#worker?.stop(now);
    await working?.catch(() => {});
  }

  /**
   * Stops, and closes the connections. What a worker that has failed has not returned is free when its lease ends. The app may be
   * used again after that.
   */
  async close(): Promise<void> {
    await this.stop();
    for (const worker of this.#failed) worker.giveUp();
    this.#failed.clear();
    await Promise.all([this.#link.close(), this.#closePool()]);
  }

  /** `await using app = new App(…)` closes it at the end of the block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #newWorker(options: WorkOptions): Worker {
    const { actions = [...this.#actions.keys()], concurrency = 10, prefetch = 0 } = options;
    const registered = actions.map((action) => {
      const found = this.#actions.get(action);
      if (!found) throw new Error(`no handler is registered for action "${action}"`);
      return found;
    });
    if (registered.length === 0) throw new Error("no handler is registered");
    if (!(Number.isInteger(concurrency) && concurrency >= 1))
      throw new RangeError("concurrency is no positive integer");
    if (!(Number.isInteger(prefetch) && prefetch >= 0))
      throw new RangeError("prefetch is no integer from 0 up");
    const queue = new Queue(this.#make, this.#link, this.#actor, this.#log, {
      prepare: this.#prepare,
      timeout: this.#timeout,
      // A claim sleeps, for longer than an answer may take elsewhere.
      claimTimeout: this.#timeout && Math.max(this.#timeout, QUERY_TIMEOUT),
    });
    const environment: Environment = { calls: this.#link, pool: () => this.#pool(concurrency) };
    return new Worker(queue, environment, registered, { ...options, concurrency, prefetch }, this.#log);
  }

  #pool(max: number): pg.Pool {
    if (!this.#givenPool) this.#ownPool ??= new OwnPool({ ...this.#config, allowExitOnIdle: true });
    if (this.#ownPool) this.#ownPool.options.max = max;
    const pool = this.#givenPool ?? (this.#ownPool as pg.Pool);
    // An idle connection that is lost is replaced when one is needed. Without a listener it would end the process.
    if (pool.listenerCount("error") === 0)
      pool.on("error", (error) => this.#log.warn(`a connection of the pool was lost: ${error.message}`));
    return pool;
  }

  readonly #make = (): pg.Client =>
    new pg.Client({
      application_name: "taskq-pg",
      connectionTimeoutMillis: 10_000,
      keepAlive: true,
      ...this.#config,
      // A link has a time-out of its own.
      query_timeout: 0,
      types: COLUMN_TYPES,
    });

  /** @internal For `taskq-pg/testing`: the registered actions and the configuration. */
  get internals() {
    return {
      config: this.#config,
      run: (text: string, values: (string | null)[]) => this.#link.query(text, values),
    };
  }
}
