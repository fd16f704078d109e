import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import pg from "pg";
import { COLUMN_TYPES } from "./column-types.js";
import { number } from "./durations.js";
import { encodeTask, inMilliseconds } from "./encode.js";
import { type Environment, runningIn } from "./environment.js";
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
import { Producer } from "./producer.js";
import { Queue } from "./queue.js";
import type { Action, Logger, NewTask, ScheduleOptions, WorkOptions } from "./types.js";
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
export class App extends Producer {
  readonly #config: pg.ClientConfig;
  readonly #actor: string;
  protected readonly log: Logger;
  readonly #prepare: boolean;
  readonly #timeout: number;
  protected readonly link: Link;
  readonly #givenPool: pg.Pool | undefined;
  #ownPool: OwnPool | undefined;
  #worker: Worker | undefined;
  #working: Promise<void> | undefined;
  /** Whether the worker performs whatever is registered. */
  #worksAll = false;
  /** Workers that have failed, and still return what was in hand. */
  readonly #failed = new Set<Worker>();

  /** With a connection string, the options of a client of pg, or a pool; with nothing, `PGHOST` and its like count. */
  constructor(options: string | AppOptions = {}) {
    super();
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
    this.log = logger ?? STDERR;
    this.#prepare = preparedStatements;
    this.#timeout = config.query_timeout ?? pool?.options.query_timeout ?? QUERY_TIMEOUT;
    const timeout = this.#timeout;
    this.link = new Link(this.#make, this.log, { prepare: preparedStatements, spare: true, timeout });
  }

  // --- registering ---------------------------------------------------------------------------------------------------

  /** Registers the handler of an action. With `transactional`, it runs inside the transaction that completes the task. */
  task<Body = any, Result = unknown>(action: string, handler: Handler<Body, Result>): Action<Body, Result>;
  task<Body = any, Result = unknown>(
    action: string,
    options: HandlerOptions<Body> & { transactional: true },
    handler: TransactionalHandler<Body, Result>,
  ): Action<Body, Result>;
  task<Body = any, Result = unknown>(
    action: string,
    options: HandlerOptions<Body> & { transactional?: false },
    handler: Handler<Body, Result>,
  ): Action<Body, Result>;
  task(action: string, ...rest: any[]): Action<any> {
    const [options, handler] = rest.length === 1 ? [{}, rest[0]] : rest;
    const perform = options.transactional
      ? transactional(handler, options.schema)
      : plain(handler as Handler<any, unknown>, options.schema);
    return this.#register(register(action, options, { perform }));
  }

  /** Registers a workflow: a function that is left while it waits, and entered again. */
  workflow<Body = any, Result = unknown>(
    action: string,
    workflow: Workflow<Body, Result>,
  ): Action<Body, Result>;
  workflow<Body = any, Result = unknown>(
    action: string,
    options: ActionOptions<Body>,
    workflow: Workflow<Body, Result>,
  ): Action<Body, Result>;
  workflow(action: string, ...rest: any[]): Action<any> {
    const [options, workflow] = rest.length === 1 ? [{}, rest[0]] : rest;
    const perform = durable(workflow as Workflow<any, unknown>, options.schema);
    return this.#register(register(action, options, { perform, results: true, steps: true }));
  }

  #register(registered: Registered): Action<any> {
    const { action } = registered;
    if (this.actions.has(action)) throw new Error(`action "${action}" is registered twice`);
    this.actions.set(action, registered);
    if (this.#worksAll) void this.#worker?.add(registered);
    return {
      action,
      insert: (body, options) => this.insert(action, body, options),
      insertMany: (bodies, options) => this.insertMany(action, bodies, options),
    };
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
    const { timezone = "UTC", overlap = "skip", backfill = "one", maxBackfill, client } = options;
    const [row] = await this.run(
      client,
      `SELECT ${inMilliseconds("next")} AS next FROM taskq.schedule($1::text, $2::text, $3::text::jsonb, timezone => $4::text, overlap => $5::text,
                             backfill => $6::text, max_backfill => $7::text::integer) AS next`,
      [
        name,
        cron,
        JSON.stringify({ ...encodeTask(task), metadata: task.metadata }),
        timezone,
        overlap,
        backfill,
        maxBackfill === undefined ? null : String(number("maxBackfill", maxBackfill)),
      ],
    );
    return row.next === null ? null : new Date(Number(row.next));
  }

  // --- working -------------------------------------------------------------------------------------------------------

  /**
   * Performs tasks until {@link stop} is called, or SIGTERM or SIGINT comes, or with `untilIdle` until there is nothing to
   * do. Lost connections, restarts and failovers of the server are survived; an error that no repetition mends, such as of
   * rights, is thrown.
   */
  async work(options: WorkOptions = {}): Promise<void> {
    if (this.#working) throw new Error("this app works already");
    const worker = this.#newWorker(options);
    const signals = options.signals === false ? undefined : stopOnSignals(worker, this.log);
    // What is taken from this worker is told on a channel, over the connection that its heartbeats go by.
    this.link.listen("taskq.lost_channel($1)", this.#actor, () => void worker.hear());
    this.#worker = worker;
    this.#worksAll = options.actions === undefined;
    this.#working = worker.run();
    try {
      await this.#working;
    } finally {
      this.#worker = undefined;
      this.#working = undefined;
      this.link.listenNoMore();
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
    this.waitNoMore();
    await Promise.all([this.link.close(), this.#closePool()]);
  }

  /** `await using app = new App(…)` closes it at the end of the block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #newWorker(options: WorkOptions): Worker {
    const { actions = [...this.actions.keys()], concurrency = 10, prefetch = 0 } = options;
    const registered = actions.map((action) => {
      const found = this.actions.get(action);
      if (!found) throw new Error(`no handler is registered for action "${action}"`);
      return found;
    });
    if (registered.length === 0) throw new Error("no handler is registered");
    if (!(Number.isInteger(concurrency) && concurrency >= 1))
      throw new RangeError("concurrency is no positive integer");
    if (!(Number.isInteger(prefetch) && prefetch >= 0))
      throw new RangeError("prefetch is no integer from 0 up");
    const queue = new Queue(this.#make, this.link, this.#actor, this.log, {
      prepare: this.#prepare,
      timeout: this.#timeout,
      // A claim sleeps, for longer than an answer may take elsewhere.
      claimTimeout: this.#timeout && Math.max(this.#timeout, QUERY_TIMEOUT),
    });
    const environment: Environment = {
      calls: this.link,
      pool: () => this.#pool(concurrency),
      check: (tasks) => this.check(tasks),
      running: runningIn(this.#make()),
    };
    return new Worker(queue, environment, registered, { ...options, concurrency, prefetch }, this.log);
  }

  #pool(max: number): pg.Pool {
    if (!this.#givenPool) this.#ownPool ??= new OwnPool({ ...this.#config, allowExitOnIdle: true });
    if (this.#ownPool) this.#ownPool.options.max = max;
    const pool = this.#givenPool ?? (this.#ownPool as pg.Pool);
    // An idle connection that is lost is replaced when one is needed. Without a listener it would end the process.
    if (pool.listenerCount("error") === 0)
      pool.on("error", (error) => this.log.warn(`a connection of the pool was lost: ${error.message}`));
    return pool;
  }

  protected newLink(): Link {
    return new Link(this.#make, this.log, { brief: true, timeout: this.#timeout });
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
      run: (text: string, values: (string | null)[]) => this.link.query(text, values),
    };
  }
}
