import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import pg from "pg";
import { Calls } from "./calls.js";
import { COLUMN_TYPES } from "./column-types.js";
import { Declared, type Schedule, versionOf } from "./declared.js";
import { number } from "./durations.js";
import { encodeTask, jsonOf, settingsOf } from "./encode.js";
import { type Around, type Environment, runningIn } from "./environment.js";
import type { Action } from "./handle.js";
import {
  type ActionOptions,
  type BatchHandler,
  type BatchOptions,
  durable,
  type Handler,
  type HandlerOptions,
  plain,
  type Registered,
  register,
  type TransactionalHandler,
  together,
  transactional,
  type Workflow,
} from "./handlers.js";
import type { LinkOptions } from "./link.js";
import type { WorkOptions } from "./places.js";
import { OwnPool, surviveLosses } from "./pool.js";
import { giveBackInCrash, stopOnSignals } from "./process.js";
import { Producer } from "./producer.js";
import { Queue } from "./queue.js";
import type { Logger, Named, Queryable, ScheduleOptions } from "./types.js";
import { Worker } from "./worker.js";

/** Where the queue is, and what the app is called there. */
export interface AppOptions extends pg.ClientConfig {
  /**
   * A pool for transactional handlers and the transactions of workflows. Where it leads to is where the app's own
   * connections lead. Absent: the app makes one when it needs it.
   */
  pool?: pg.Pool;
  /** Settings and schedules that `setup` writes are those of the app of this name. */
  name?: string;
  /** Of the settings and schedules: an integer, or dotted numbers. A worker of a higher one writes its own. */
  version?: string | number;
  /** The name under which tasks are owned, for people. Host and process id, and something random. */
  actor?: string;
  /** At most so many connections besides those of the worker: calls queue for them. 8. */
  maxConnections?: number;
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

/** What takes longer than this is taken for a server that has vanished. */
const QUERY_TIMEOUT = 60_000;

/**
 * The tasks of one database: inserts them, and performs those whose actions are registered. It connects when it is first
 * used. An idle app keeps no process alive.
 */
export class App extends Producer {
  readonly #config: pg.ClientConfig;
  readonly #app: { name?: string; version: string | null };
  readonly #actor: string;
  protected readonly log: Logger;
  readonly #link: Omit<LinkOptions, "terms">;
  protected readonly calls: Calls;
  readonly #givenPool: pg.Pool | undefined;
  #ownPool: OwnPool | undefined;
  readonly #schedules = new Map<string, Schedule>();
  readonly #arounds: Around[] = [];
  readonly #starts: (() => unknown)[] = [];
  readonly #stops: (() => unknown)[] = [];
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
      name,
      version,
      actor,
      logger = STDERR,
      maxConnections = 8,
      preparedStatements: prepare = true,
      ...config
    } = typeof options === "string" ? { connectionString: options } : options;
    if (version !== undefined && name === undefined)
      throw new TypeError("an app with a version has a name: new App({ name, version })");
    this.#app = { name, version: versionOf(version) };
    this.#givenPool = pool;
    if (pool) surviveLosses(pool);
    // The password of a pool is not enumerable.
    this.#config = pool ? { ...pool.options, password: pool.options.password, ...config } : config;
    this.#actor = actor ?? `${hostname()}:${process.pid}:${randomBytes(3).toString("hex")}`;
    this.log = logger;
    const timeout = config.query_timeout ?? pool?.options.query_timeout ?? QUERY_TIMEOUT;
    this.#link = { make: () => this.#client(), log: logger, prepare, timeout };
    this.calls = new Calls(this.#link, maxConnections);
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
      ? transactional(handler, options)
      : plain(handler as Handler<any, unknown>, options);
    return this.#register(register(action, options, { perform }));
  }

  /** Registers a workflow: a function that is left while it waits, and entered again. */
  workflow<Body = any, Result = unknown>(action: string, workflow: Workflow<Body, Result>): Action<Body, Result>;
  workflow<Body = any, Result = unknown>(
    action: string,
    options: ActionOptions<Body>,
    workflow: Workflow<Body, Result>,
  ): Action<Body, Result>;
  workflow(action: string, ...rest: any[]): Action<any> {
    const [options, workflow] = rest.length === 1 ? [{}, rest[0]] : rest;
    const perform = durable(workflow as Workflow<any, unknown>, options);
    return this.#register(register(action, options, { perform, results: true, steps: true }));
  }

  /** Registers a handler of several tasks at once: it is called with a list of them. */
  batch<Body = any, Result = unknown>(action: string, handler: BatchHandler<Body, Result>): Action<Body, Result>;
  batch<Body = any, Result = unknown>(
    action: string,
    options: BatchOptions<Body>,
    handler: BatchHandler<Body, Result>,
  ): Action<Body, Result>;
  batch(action: string, ...rest: any[]): Action<any> {
    const [options, handler] = rest.length === 1 ? [{}, rest[0]] : rest;
    const { size = 100 } = options as BatchOptions;
    if (!(Number.isInteger(size) && size >= 1)) throw new RangeError("size is no positive integer");
    return this.#register(register(action, options, { perform: together(handler, options), size }));
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

  /** Calls a function before a worker claims anything. */
  onStart(hook: () => unknown): void {
    this.#starts.push(hook);
  }

  /** Calls a function when a worker has ended. */
  onStop(hook: () => unknown): void {
    this.#stops.push(hook);
  }

  /**
   * Calls a function around each performance, which `perform()` does; what it returns is the result, and what it throws fails the
   * try. The first that was registered is the outermost. Around a workflow it does not go on where that waits.
   */
  around(around: Around): void {
    this.#arounds.push(around);
  }

  /** Declares that a task is inserted at these times. {@link setup} writes it to the database, and so does a worker. */
  schedule(name: string, cron: string, action: string | Named, body?: unknown, options: ScheduleOptions = {}): void {
    const { timezone = "UTC", overlap = "skip", backfill = "one", maxBackfill, ...keys } = options;
    const most = maxBackfill === undefined ? null : String(number("maxBackfill", maxBackfill));
    const task = { ...encodeTask({ ...keys, action, body }), metadata: keys.metadata };
    this.#schedules.set(name, [cron, jsonOf(task, "task") ?? null, timezone, overlap, backfill, most]);
  }

  /**
   * Writes the settings of the actions and the schedules, as they are declared, to the database. It takes the rights of an
   * operator. With `prune` what an earlier version of the app of this name has written, and the code no longer has, is removed.
   */
  setup({ prune = false, client }: { prune?: boolean; client?: Queryable } = {}): Promise<void> {
    return this.#declared().write((text, values) => this.run(client, text, values), prune);
  }

  #declared(): Declared {
    const settings = [...this.actions.values()]
      .filter((registered) => settingsOf(registered.settings).length > 0)
      .map((registered) => [registered.action, registered.settings] as const);
    return new Declared(this.#app, new Map(settings), this.#schedules, this.log);
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
    this.#worker = worker;
    this.#worksAll = options.actions === undefined;
    this.#working = this.#run(worker);
    const crashes = giveBackInCrash(worker, this.log, this.#working);
    try {
      await this.#working;
    } finally {
      // The process ends then, and the program does not go on before it does.
      if (worker.crashed) await new Promise(() => {});
      crashes.end();
      this.#worker = undefined;
      this.#working = undefined;
      if (worker.holds) this.#failed.add(worker);
      if (worker.abandoned) await this.#closePool();
      signals?.end();
    }
  }

  async #run(worker: Worker): Promise<void> {
    try {
      for (const hook of this.#starts) await hook();
      await worker.run();
    } finally {
      for (const hook of this.#stops) await hook();
    }
  }

  /** Whether a worker of this app works, claims tasks and extends their leases. */
  healthy(): boolean {
    return this.#worker?.healthy ?? false;
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
    const failed = [...this.#failed].map((worker) => worker.giveUp());
    this.#failed.clear();
    this.waitNoMore();
    await Promise.all([...failed, this.calls.close(), this.#closePool()]);
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
    if (!(Number.isInteger(prefetch) && prefetch >= 0)) throw new RangeError("prefetch is no integer from 0 up");
    const client = this.#client();
    const environment: Environment = {
      calls: this.calls,
      log: this.log,
      pool: () => this.#pool(concurrency),
      arounds: this.#arounds,
      begin: (run) => this.#declared().beginIfAllowed(run),
      check: (tasks) => this.check(tasks),
      running: runningIn(client),
      where: `database "${client.database}" at ${client.host}:${client.port}`,
    };
    const queue = new Queue(this.#link, this.#actor, () => worker.hear());
    const worker = new Worker(queue, environment, registered, { ...options, concurrency, prefetch }, this.log);
    return worker;
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

  #client(): pg.Client {
    return new pg.Client({
      application_name: "taskq-pg",
      connectionTimeoutMillis: 10_000,
      keepAlive: true,
      ...this.#config,
      // A link has a time-out of its own.
      query_timeout: 0,
      types: COLUMN_TYPES,
    });
  }

  /** @internal For `taskq-pg/testing`: the registered actions and the configuration. */
  get internals() {
    return {
      config: this.#config,
      run: (text: string, values: (string | null)[]) => this.calls.query(text, values),
    };
  }
}
