import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";
import type { PoolClient } from "pg";
import { encodeTask, interval, type Json, toJson } from "./encode.js";
import { type Environment, inTransaction } from "./environment.js";
import { Aborted, sqlState, TimedOut } from "./errors.js";
import { runOn } from "./queryable.js";
import type { Return } from "./queue.js";
import { stored, type Task } from "./task.js";
import { tracedStep } from "./telemetry.js";
import type { DependencyResult, Duration, Instant, Queryable, TaskOptions } from "./types.js";

/** What a step may say. */
export interface StepOptions {
  /** `false`: the name may be used again, in a loop; the second use is saved as `name#2`, and so on. */
  unique?: boolean;
}

/** What a wait may say. */
export interface WaitOptions extends StepOptions {
  /** How long to wait at most, from the moment the wait is reached first. After that it throws `TimedOut`. */
  timeout?: Duration;
}

/** A signal to wait for. It is made if it does not exist yet; then the other keys count. */
export interface SignalToWaitFor {
  /** The id that `App.signal` is given. */
  signal: string;
  action?: string;
  expiresIn?: Duration;
  expiresAt?: Instant;
}

/** A task to wait for, which exists. */
export interface TaskToWaitFor {
  /** The id of the task. */
  task: string;
}

/** What to wait for, and for how long. */
export type WaitFor = WaitOptions & (SignalToWaitFor | TaskToWaitFor);

/** What children may say; their ids are made of the task's id and the step's name. */
export type ChildOptions = WaitOptions & Omit<TaskOptions, "id" | "signal" | "spontaneous" | "uniqueBy">;

/** How a wait has ended, as it is saved. */
type Ended = { result: unknown } | { aborted: string | null; task: string } | { timed_out: true };

/** What a wait asks of the suspension. Times are in seconds. */
interface Asked {
  dependsOn?: Json[];
  atMost?: number;
  notBefore?: number;
}

/** A wait that the function is in. */
interface Wait extends Asked {
  /** In the order of the calls. */
  number: number;
}

/** One kind of wait. */
interface Kind {
  /** Whether it saves children. */
  children?: true;
  /** How it has ended, if it has. */
  ended(step: string): Ended | undefined;
  /** How it had ended when its time was up, if nothing was suspended for it until then. */
  look?(step: string, until: string): Promise<Ended | undefined>;
  /** What to suspend for; `left` is what is left of its timeout. */
  wait(step: string, left: number | undefined): Asked | Promise<Asked>;
  /** What a timeout means. */
  timedOut: Ended;
}

const TIMED_OUT: Ended = { timed_out: true };

/** A step that runs. */
interface Running {
  context: Context;
  step: string;
  /** The transaction that it is, or is in. */
  transaction?: string;
  over?: true;
}

/** The step that the code is in. */
const within = new AsyncLocalStorage<Running>();

/**
 * What a workflow is given. What it does through this is saved under a name and not done again. While it waits, it holds
 * no worker, no lease and no connection; when that is over it is entered anew from the top, and finds what was saved.
 */
export class Context {
  readonly task: Task;
  /** @internal What the worker returns when the function waits. */
  readonly suspended: Promise<Return>;
  readonly #environment: Environment;
  readonly #steps: Map<string, unknown>;
  readonly #results: Map<string, DependencyResult>;
  readonly #used = new Map<string, number>();
  readonly #saved = new Set<string>();
  readonly #waits: Wait[] = [];
  /** How many waits were called, and how many of them before the last error of one. */
  #calls = 0;
  #failed = 0;
  #running = 0;
  #quiet: (() => void) | undefined;
  #left = false;
  #over = false;
  #suspend!: (outcome: Return) => void;

  /** @internal */
  constructor(task: Task, environment: Environment) {
    this.task = task;
    this.#environment = environment;
    this.#steps = new Map(Object.entries(task.steps));
    this.#results = new Map(task.results.map((row) => [row.taskId, row]));
    this.suspended = new Promise((resolve) => {
      this.#suspend = resolve;
    });
  }

  /** The task's id. */
  get id(): string {
    return this.task.id;
  }

  /**
   * Runs the function and saves its result; once it is saved, the result is given instead. If the worker dies between the
   * two, the function runs again: what it does elsewhere needs an idempotency key, `${ctx.id}/pay` for instance.
   */
  step<T>(name: string, run: () => T | Promise<T>, options: StepOptions = {}): Promise<T> {
    return this.#perform(name, options, false, async (step) => this.#save(step, await this.#whole(run)));
  }

  /** Runs the function in a transaction that saves the step, too: its rows are written exactly once. */
  transaction<T>(
    name: string,
    run: (client: PoolClient) => T | Promise<T>,
    options: StepOptions = {},
  ): Promise<T> {
    return this.#perform(name, options, true, (step) =>
      inTransaction(this.#environment.pool(), this.task, async (client) =>
        this.#save(step, await this.#whole(() => run(client)), client),
      ),
    );
  }

  /** What a function makes, if the task is still held when it ends. */
  async #whole<T>(run: () => T | Promise<T>): Promise<T> {
    const made = await run();
    this.task.throwIfAborted();
    return made;
  }

  /** Runs what is not saved yet. */
  #perform<T>(
    name: string,
    options: StepOptions,
    transaction: boolean,
    run: (step: string) => Promise<T>,
  ): Promise<T> {
    return handedOut(async () => {
      const outer = this.#outer;
      // With all connections of the pool in outer ones, no inner one would ever get its own.
      if (transaction && outer?.transaction !== undefined)
        throw new Error(
          `transaction "${name}" is within transaction "${outer.transaction}": use the client of that one`,
        );
      const step = this.#name(name, options);
      if (this.#steps.has(step)) return this.#steps.get(step) as T;
      const running: Running = { context: this, step, transaction: transaction ? step : outer?.transaction };
      return this.#busy(async () => {
        try {
          return await within.run(running, () => tracedStep(step, () => run(step)));
        } finally {
          running.over = true;
        }
      });
    });
  }

  /** The step of this workflow that the code is in, while that runs. */
  get #outer(): Running | undefined {
    const outer = within.getStore();
    return outer?.context === this && !outer.over ? outer : undefined;
  }

  /**
   * Waits until a signal was given, and returns what it says; or until a task has ended, and returns its result. Throws
   * `TimedOut` after the `timeout`, and `Aborted` if the signal was cancelled or has expired, or the task has aborted.
   */
  waitFor<T = unknown>(name: string, options: WaitFor): Promise<T> {
    const element = "signal" in options ? signalElement(options) : { id: options.task };
    return this.#wait<T>(name, options, {
      ended: () => endOf(this.#results.get(String(element.id))),
      look: async (_, until) => endOf((await this.#look([String(element.id)], until))?.[0]),
      wait: (_, left) => ({ dependsOn: [element], atMost: left }),
      timedOut: TIMED_OUT,
    });
  }

  /** Performs one task and returns its result. Throws `Aborted` if it aborts. */
  call<T = unknown>(name: string, action: string, body?: unknown, options: ChildOptions = {}): Promise<T> {
    return handedOut(async () => (await this.map<T>(name, action, [body], options))[0] as T);
  }

  /**
   * Performs a task for each body, and returns their results in the order of the bodies once all have ended. Throws
   * `Aborted` if one of them has aborted.
   */
  map<T = unknown>(
    name: string,
    action: string,
    bodies: unknown[],
    options: ChildOptions = {},
  ): Promise<T[]> {
    const { unique, timeout, ...keys } = options;
    const children = async (step: string) =>
      this.#childIds(step, bodies.length) ?? (await this.#spawn(step, action, bodies, keys));
    return this.#wait<T[]>(
      name,
      { unique, timeout },
      {
        children: true,
        ended: (step) => endOfAll(this.#childIds(step, bodies.length)?.map((id) => this.#results.get(id))),
        look: async (step, until) => endOfAll(await this.#look(await children(step), until)),
        wait: async (step, left) => ({
          dependsOn: (await children(step)).map((id) => ({ id })),
          atMost: left,
        }),
        timedOut: TIMED_OUT,
      },
    );
  }

  /** Waits for so long. */
  sleep(name: string, duration: Duration, options: StepOptions = {}): Promise<void> {
    const kind: Kind = {
      ended: () => undefined,
      wait: (_, left) => ({ notBefore: left }),
      timedOut: { result: null },
    };
    return handedOut(async () => void (await this.#wait(name, { ...options, timeout: duration }, kind)));
  }

  /**
   * A wait of any kind. How it has ended is saved, so that history does not change: not by a later signal, and not because
   * a task it waited for is removed.
   */
  #wait<T>(name: string, options: WaitOptions, kind: Kind): Promise<T> {
    return handedOut(() => this.#waitUntil<T>(name, options, kind));
  }

  async #waitUntil<T>(name: string, { unique, timeout }: WaitOptions, kind: Kind): Promise<T> {
    const outer = this.#outer;
    // The suspension would wait for the step, and the step for what comes after the suspension.
    if (outer)
      throw new Error(`"${name}" waits within step "${outer.step}": wait before the step, or after it`);
    const number = ++this.#calls;
    const step = this.#name(name, { unique });
    if (timeout !== undefined) this.#take(`${step}/until`);
    if (kind.children) this.#take(`${step}/children`);
    const saved = this.#steps.get(step) as Ended | undefined;
    if (saved) return this.#unwrap<T>(saved, step);
    const ended = kind.ended(step);
    if (ended) return this.#unwrap<T>(await this.#busy(() => this.#save(step, ended)), step);
    const time =
      timeout === undefined ? undefined : await this.#busy(() => this.#limit(`${step}/until`, timeout));
    if (time?.left === 0) {
      const end = async () => (await kind.look?.(step, time.until)) ?? kind.timedOut;
      return this.#unwrap<T>(await this.#busy(async () => this.#save(step, await end())), step);
    }
    return this.#suspendFor({ number, ...(await this.#busy(async () => kind.wait(step, time?.left))) });
  }

  /** The result of a wait, or its error. See {@link suspension} for those that were called before the error. */
  async #unwrap<T>(ended: Ended, step: string): Promise<T> {
    if (!("timed_out" in ended || "aborted" in ended)) return ended.result as T;
    // What is called in the same turn, the rest of a `Promise.all`, comes first.
    await undefined;
    this.#failed = this.#calls;
    throw "timed_out" in ended
      ? new TimedOut(`"${step}" has timed out`)
      : new Aborted(ended.task, ended.aborted);
  }

  /** How tasks had ended by that time, if all had. */
  async #look(ids: string[], until: string): Promise<DependencyResult[] | undefined> {
    try {
      const rows = await this.#environment.calls.call(
        `SELECT id AS "taskId", '' AS action, status_code AS "statusCode", status, result
           FROM unnest($1::text[]) WITH ORDINALITY AS each (id, n), taskq.wait_for_task(id, '0')
          WHERE settled_at <= $2::timestamptz ORDER BY n`,
        [ids, until],
      );
      return rows.length === ids.length ? rows : undefined;
    } catch (error) {
      // There is no such task.
      if (sqlState(error)?.startsWith("TQ")) return undefined;
      throw error;
    }
  }

  #call(text: string, values: unknown[]): Promise<any[]> {
    return this.task.held(this.#environment.calls.call(text, values));
  }

  /** The ids of the children of a step, in order, if they were inserted. */
  #childIds(step: string, count: number): string[] | undefined {
    if (count === 0) return [];
    const saved = this.#steps.get(`${step}/children`) as { run: string } | undefined;
    return saved && childIds(`${this.id}/${step}`, count, saved.run);
  }

  /** Inserts the children of a step, and saves that they are there. */
  async #spawn(step: string, action: string, bodies: unknown[], keys: TaskOptions): Promise<string[]> {
    // Of each run anew: a workflow that was rewound finds the ids of its first run taken.
    const run = randomUUID().slice(0, 8);
    const ids = childIds(`${this.id}/${step}`, bodies.length, run);
    const children = ids.map((id, n) => encodeTask({ ...keys, id, action, body: bodies[n] }));
    await this.#call(
      `SELECT taskq.save_step($1, $2, $3, $4::jsonb), (SELECT count(*) FROM taskq.insert_tasks($5::jsonb, on_conflict => 'skip'))`,
      [this.id, this.task.token, `${step}/children`, JSON.stringify({ run }), toJson(children, "children")],
    );
    return ids;
  }

  /** Saves a step, and gives what is kept: what was saved first, as JSON has it. */
  async #save<T>(step: string, result: T, client?: Queryable): Promise<T> {
    const query =
      "SELECT taskq.save_step($1::text, $2::text::uuid, $3::text, $4::text::jsonb)::text AS saved";
    const values = [this.task.id, this.task.token, step, toJson(result) ?? null];
    const call = client ? runOn(client, query, values) : this.#environment.calls.call(query, values);
    const [row] = await stored(`result of step "${step}"`, this.task.held(call));
    // Read here, and not by a driver: on the application's connection that may have another parser.
    return JSON.parse(row.saved);
  }

  /** A time that began when this was asked first, and the seconds that are left of it, by the queue's clock. */
  async #limit(step: string, duration: Duration): Promise<{ left: number; until: string }> {
    const [{ left, until }] = await this.#call(
      `SELECT ceil(1000 * greatest(extract(epoch FROM (saved ->> 'until')::timestamptz - taskq.clock()), 0))::bigint AS left,
              saved ->> 'until' AS until
         FROM taskq.save_step($1, $2, $3, jsonb_build_object('until', taskq.clock() + $4::interval)) AS saved`,
      [this.task.id, this.task.token, step, interval(duration)],
    );
    return { left: left / 1000, until };
  }

  /**
   * Suspends the task. Waits that are asked for together, in a `Promise.all`, are one suspension, for all of them; and it
   * comes when no step is running beside them.
   */
  #suspendFor(wait: Wait): Promise<never> {
    this.#waits.push(wait);
    this.#settle();
    return never();
  }

  /** @internal The task is suspended, or has failed: what goes on beside that begins nothing more. */
  leave(): void {
    this.#left = true;
  }

  /** @internal The task is returned. */
  end(): void {
    this.leave();
    this.#over = true;
  }

  /** @internal Resolves when no step is running: the next try must not run beside a step of this one. */
  get quiet(): Promise<void> {
    return new Promise((resolve) => {
      this.#quiet = resolve;
      if (this.#running === 0) resolve();
    });
  }

  /** Counts what is running, for {@link #suspendFor}. */
  async #busy<T>(run: () => Promise<T>): Promise<T> {
    if (this.#left) {
      if (!this.#outer) return never();
      // A step that runs must come to an end: the next try waits for it, and it may have a connection of the pool.
      if (this.#over)
        throw new Error(`the workflow has ended, and step "${this.#outer.step}" was still running`);
    }
    // A task that is lost, or given back, does nothing more.
    this.task.throwIfAborted();
    this.#running++;
    try {
      return await run();
    } finally {
      if (--this.#running === 0) this.#quiet?.();
      this.#settle();
    }
  }

  #settle(): void {
    if (this.#waits.length === 0) return;
    // What follows a step, and may be another one, begins before this.
    setImmediate(() => {
      if (this.#running > 0) return;
      this.leave();
      this.#suspend(suspension(this.#waits, this.#failed));
    });
  }

  /** The name under which a step is saved. */
  #name(name: string, { unique = true }: StepOptions): string {
    if (name === "") throw new TypeError("a step needs a name");
    const count = (this.#used.get(name) ?? 0) + 1;
    this.#used.set(name, count);
    return this.#take(count === 1 || unique ? name : `${name}#${count}`);
  }

  /** What one step has saved must not be read by another. */
  #take(step: string): string {
    if (this.#saved.has(step))
      throw new Error(`step "${step}" is used twice in this run: give it another name, or { unique: false }`);
    this.#saved.add(step);
    return step;
  }
}

/**
 * A promise that may be rejected before it is awaited: only what awaits it sees the error. Without this Node would end the
 * process, and with it all other tasks.
 */
function handedOut<T>(make: () => Promise<T>): Promise<T> {
  const promise = make();
  promise.catch(() => {});
  return promise;
}

/** A new one each time: what awaits it is garbage with it. */
function never(): Promise<never> {
  return new Promise(() => {});
}

function signalElement({ signal, action, expiresIn, expiresAt }: SignalToWaitFor): Json {
  const expires_in = expiresIn === undefined ? undefined : interval(expiresIn);
  return { id: signal, signal: true, action, expires_in, expires_at: expiresAt };
}

/**
 * The return that suspends a task for these waits. A function that goes on to another wait after the error of one has left
 * what it had joined with that: then it waits for the later ones.
 */
function suspension(waits: Wait[], failed: number): Return {
  const later = waits.filter(({ number }) => number > failed);
  const meant = later.length > 0 ? later : waits;
  // The first timeout that is over is a reason to enter, also beside what takes longer.
  const atMost = Math.min(...waits.map((wait) => wait.atMost ?? Number.POSITIVE_INFINITY));
  const notBefore = Math.max(...meant.map((wait) => wait.notBefore ?? 0));
  const dependsOn = meant.flatMap((wait) => wait.dependsOn ?? []);
  const first = seconds(Math.min(atMost, notBefore || Number.POSITIVE_INFINITY));
  // A `retry_after` holds back whatever has ended before it.
  const timed = dependsOn.length > 0 && Number.isFinite(atMost);
  return {
    status_code: "pending",
    depends_on: dependsOn,
    wait_at_most: timed ? first : undefined,
    retry_after: !timed && notBefore > 0 ? first : undefined,
  };
}

/** No exponent: an interval of PostgreSQL knows none. */
function seconds(number: number): string {
  return `${number.toFixed(6)} seconds`;
}

function childIds(prefix: string, count: number, run: string): string[] {
  return Array.from({ length: count }, (_, n) => `${prefix}/${n}/${run}`);
}

function endOf(row: DependencyResult | undefined): Ended | undefined {
  if (row === undefined) return undefined;
  return row.statusCode === "completed" ? { result: row.result } : { aborted: row.status, task: row.taskId };
}

/** Not before all have ended. */
function endOfAll(rows: (DependencyResult | undefined)[] | undefined): Ended | undefined {
  if (rows === undefined || rows.includes(undefined)) return undefined;
  const ends = rows.map((row) => endOf(row) as Ended);
  return (
    ends.find((end) => "aborted" in end) ?? { result: ends.map((end) => (end as { result: unknown }).result) }
  );
}
