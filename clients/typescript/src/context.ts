import { AsyncLocalStorage } from "node:async_hooks";
import { createHash } from "node:crypto";
import type { PoolClient } from "pg";
import { interval } from "./durations.js";
import { encodeKey, encodeTask, type Json, toJson } from "./encode.js";
import { type Environment, inTransaction } from "./environment.js";
import { Aborted, sqlState, TimedOut } from "./errors.js";
import { idOf } from "./operators.js";
import { runOn } from "./queryable.js";
import type { Return } from "./queue.js";
import { stored, type Task } from "./task.js";
import { tracedStep } from "./telemetry.js";
import type { Action, DependencyResult, Duration, Id, Instant, Queryable, TaskOptions } from "./types.js";

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

/** Tasks to wait for, which exist. */
export interface TasksToWaitFor {
  tasks: Id[];
}

/** What children may say; their ids are made of the task's id and the step's name. */
export type ChildOptions = WaitOptions & Omit<TaskOptions, "id" | "signal" | "spontaneous" | "uniqueBy">;

/** How a task has ended, as a wait saves it. */
type Ended = { task_id: string; result: unknown } | { task_id: string; aborted: string | null };

/** How a wait has ended, as it is saved: for what it waited for, in order; or with its time. */
type Saved = Ended[] | { timed_out: true } | null;

/** A wait that the function is in. */
interface Wait {
  /** In the order of the calls. */
  number: number;
  /** None: nothing but the time. */
  dependsOn: Json[];
  /** In seconds. */
  atMost?: number;
}

/** What is waited for. */
interface Kind {
  /** Whether it saves which children it has inserted. */
  inserts?: true;
  /** The ids of the tasks, if they are known. None: nothing but the time. */
  known(step: string): string[] | undefined;
  /** What to suspend for. */
  elements(step: string): Json[] | Promise<Json[]>;
  /** What is saved when the time is up. */
  timedOut: Saved;
}

const TIMED_OUT: Saved = { timed_out: true };

/** A step that runs. */
interface Running {
  context: Context;
  step: string;
  /** The transaction that it is, or is in. */
  transaction?: string;
  over?: true;
}

/** One statement: it may have been committed although its answer got lost, and finds what it has inserted by the step then. */
const INSERT = `SELECT taskq.save_step($1, $2, $3, (
         SELECT coalesce(jsonb_agg(id ORDER BY n), '[]') FROM taskq.insert_tasks($4::jsonb) WITH ORDINALITY AS inserted (id, n))) AS saved`;

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
   * two, the function runs again: what it does elsewhere needs an idempotency key, such as `${ctx.id}/pay`.
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
   * Waits until a signal was given, and returns what it says; or until tasks have ended, and returns their results in order.
   * Throws `TimedOut` after the `timeout`, and `Aborted` if the signal was cancelled or has expired, or a task has aborted.
   */
  waitFor<T = unknown>(name: string, options: WaitOptions & TasksToWaitFor): Promise<T[]>;
  waitFor<T = unknown>(name: string, options: WaitOptions & SignalToWaitFor): Promise<T>;
  waitFor(name: string, options: WaitOptions & (SignalToWaitFor | TasksToWaitFor)): Promise<unknown> {
    return handedOut(async () => {
      const elements =
        "signal" in options ? [signalElement(options)] : options.tasks.map((id) => ({ id: idOf(id) }));
      const ids = elements.map(({ id }) => String(id));
      const kind = { known: () => ids, elements: () => elements, timedOut: TIMED_OUT };
      const results = await this.#values(name, await this.#wait(name, options, kind), false);
      return "signal" in options ? results[0] : results;
    });
  }

  /** Performs one task and returns its result. Throws `Aborted` if it aborts. */
  call<Body, T>(name: string, action: Action<Body, T>, body: Body, options?: ChildOptions): Promise<T>;
  call<T = unknown>(name: string, action: string, body?: unknown, options?: ChildOptions): Promise<T>;
  call(name: string, action: string | Action, body?: unknown, options: ChildOptions = {}): Promise<unknown> {
    return handedOut(async () => (await this.map(name, action as string, [body], options))[0]);
  }

  /**
   * Performs a task for each body, and returns their results in the order of the bodies once all have ended. Throws
   * `Aborted` if one of them has aborted; with `returnAborted` that error stands in its place among the results.
   */
  map<Body, T>(
    name: string,
    action: Action<Body, T>,
    bodies: Body[],
    options?: ChildOptions & { returnAborted?: false },
  ): Promise<T[]>;
  map<T = unknown>(
    name: string,
    action: string | Action,
    bodies: unknown[],
    options: ChildOptions & { returnAborted: true },
  ): Promise<(T | Aborted)[]>;
  map<T = unknown>(
    name: string,
    action: string,
    bodies: unknown[],
    options?: ChildOptions & { returnAborted?: false },
  ): Promise<T[]>;
  map(
    name: string,
    action: string | Action,
    bodies: unknown[],
    options: ChildOptions & { returnAborted?: boolean } = {},
  ): Promise<unknown[]> {
    const { unique, timeout, returnAborted = false, ...keys } = options;
    const known = (step: string) => this.#steps.get(`${step}:tasks`) as string[] | undefined;
    const kind: Kind = {
      inserts: true,
      known,
      elements: async (step) =>
        (known(step) ?? (await this.#insert(step, action, bodies, keys))).map((id) => ({ id })),
      timedOut: TIMED_OUT,
    };
    return handedOut(async () =>
      this.#values(name, await this.#wait(name, { unique, timeout }, kind), returnAborted),
    );
  }

  /** Waits for so long. */
  sleep(name: string, duration: Duration, options: StepOptions = {}): Promise<void> {
    const kind: Kind = { known: () => undefined, elements: () => [], timedOut: null };
    return handedOut(async () => void (await this.#wait(name, { ...options, timeout: duration }, kind)));
  }

  /**
   * A wait of any kind. How it has ended is saved, so that history does not change: not by a later signal, and not because
   * a task it waited for is removed.
   */
  async #wait(name: string, { unique, timeout }: WaitOptions, kind: Kind): Promise<Saved> {
    const outer = this.#outer;
    // The suspension would wait for the step, and the step for what comes after the suspension.
    if (outer)
      throw new Error(`"${name}" waits within step "${outer.step}": wait before the step, or after it`);
    const number = ++this.#calls;
    const step = this.#name(name, { unique });
    if (timeout !== undefined) this.#take(`${step}:until`);
    if (kind.inserts) this.#take(`${step}:tasks`);
    if (this.#steps.has(step)) return this.#steps.get(step) as Saved;
    const ended = this.#endsOf(kind.known(step));
    if (ended) return this.#busy(() => this.#save(step, ended));
    const time =
      timeout === undefined ? undefined : await this.#busy(() => this.#limit(`${step}:until`, timeout));
    if (time?.left === 0) return this.#busy(() => this.#timeIsUp(step, kind, time.until));
    const elements = await this.#busy(async () => kind.elements(step));
    if (elements.length === 0 && kind.timedOut !== null) return this.#busy(() => this.#save(step, []));
    return this.#suspendFor({ number, dependsOn: elements, atMost: time?.left });
  }

  /** How tasks have ended, if all have. */
  #endsOf(ids: string[] | undefined): Ended[] | undefined {
    const ends = ids?.map((id) => endOf(this.#results.get(id)));
    return ends?.includes(undefined) ? undefined : (ends as Ended[] | undefined);
  }

  /** The time of a wait is over. What had ended by then counts, if nothing was suspended for it until then. */
  async #timeIsUp(step: string, kind: Kind, until: string): Promise<Saved> {
    const ids = kind.timedOut === null ? [] : (await kind.elements(step)).map(({ id }) => String(id));
    const rows = ids.length > 0 ? await this.#look(ids, until) : undefined;
    return this.#save(step, rows?.map((row) => endOf(row) as Ended) ?? kind.timedOut);
  }

  /** The results of a wait, or its error. See {@link suspension} for those that were called before the error. */
  async #values(name: string, saved: Saved, returnAborted: boolean): Promise<unknown[]> {
    if (saved === null) return [];
    const aborted = (end: Ended) => ("aborted" in end ? new Aborted(end.task_id, end.aborted) : undefined);
    const error = Array.isArray(saved)
      ? returnAborted || saved.map(aborted).find((each) => each)
      : new TimedOut(`"${name}" has timed out`);
    if (!(error instanceof Error))
      return (saved as Ended[]).map((end) => aborted(end) ?? (end as { result: unknown }).result);
    // What is called in the same turn, the rest of a `Promise.all`, comes first.
    await undefined;
    this.#failed = this.#calls;
    throw error;
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

  /**
   * Inserts the children of a step and saves which they are, in one statement. An earlier run of the workflow, before it was
   * rewound, may have children of the same ids: then those of this run end in what is this performance's own.
   */
  async #insert(
    step: string,
    action: string | Action,
    bodies: unknown[],
    keys: TaskOptions,
  ): Promise<string[]> {
    const own = createHash("sha256").update(this.task.token).digest("hex").slice(0, 8);
    const tasks = `${step}:tasks`;
    for (const end of ["", `/x${own}`]) {
      const children = bodies.map((body, n) => ({
        ...keys,
        id: `${this.id}/${step}/${n}${end}`,
        action,
        body,
      }));
      await this.#environment.check(children);
      try {
        const text = toJson(children.map(encodeTask), "children");
        const [row] = await this.#call(INSERT, [this.id, this.task.token, tasks, text]);
        return row.saved;
      } catch (error) {
        if (sqlState(error) !== "TQ002" || end) throw error;
        // Those of this run, if the answer of the same statement got lost.
        const [row] = await this.#call("SELECT result FROM taskq.steps WHERE task_id = $1 AND step = $2", [
          this.id,
          tasks,
        ]);
        if (row) return row.result;
      }
    }
    throw new Error("unreachable");
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
      `SELECT ceil(1000 * greatest(extract(epoch FROM until::timestamptz - taskq.clock()), 0))::bigint AS left, until
         FROM (SELECT taskq.save_step($1, $2, $3, to_jsonb(taskq.clock() + $4::interval)) #>> '{}' AS until) AS saved`,
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
  const expires = (key: string, value: unknown) => (value === undefined ? undefined : encodeKey(key, value));
  const expires_in = expires("expiresIn", expiresIn);
  return { id: signal, signal: true, action, expires_in, expires_at: expires("expiresAt", expiresAt) };
}

/**
 * The return that suspends a task for these waits. A function that goes on to another wait after the error of one has left
 * what it had joined with that: then it waits for the later ones.
 */
function suspension(waits: Wait[], failed: number): Return {
  const later = waits.filter(({ number }) => number > failed);
  const meant = later.length > 0 ? later : waits;
  const dependsOn = meant.flatMap((wait) => wait.dependsOn);
  // A sleep that stands beside other sleeps lasts as long as the longest; a timeout that is over is a reason to enter.
  const sleeps = meant.filter((wait) => wait.dependsOn.length === 0).map((wait) => wait.atMost ?? 0);
  const timeouts = waits
    .filter((wait) => wait.dependsOn.length > 0)
    .map((wait) => wait.atMost ?? Number.POSITIVE_INFINITY);
  const first = Math.min(...timeouts, Math.max(...sleeps, 0) || Number.POSITIVE_INFINITY);
  // A `retry_after` holds back whatever has ended before it.
  const timed = dependsOn.length > 0 && Number.isFinite(Math.min(...timeouts));
  return {
    status_code: "pending",
    depends_on: dependsOn,
    wait_at_most: timed ? seconds(first) : undefined,
    retry_after: !timed && sleeps.length > 0 ? seconds(first) : undefined,
  };
}

/** No exponent: an interval of PostgreSQL knows none. */
function seconds(number: number): string {
  return `${number.toFixed(6)} seconds`;
}

function endOf(row: DependencyResult | undefined): Ended | undefined {
  if (row === undefined) return undefined;
  const { taskId: task_id, result, status: aborted } = row;
  return row.statusCode === "completed" ? { task_id, result } : { task_id, aborted };
}
