import type { PoolClient } from "pg";
import { encodeKey, type Json } from "./encode.js";
import { type Environment, inTransaction } from "./environment.js";
import type { Aborted } from "./errors.js";
import type { Action } from "./handle.js";
import { Names } from "./names.js";
import { idOf } from "./operators.js";
import { Saved } from "./saved.js";
import type { Suspension } from "./suspension.js";
import type { Task } from "./task.js";
import { tracedStep } from "./telemetry.js";
import type { Duration, Id, Instant, TaskOptions } from "./types.js";
import { type Kind, Waiting } from "./waiting.js";

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

/**
 * What a workflow is given. What it does through this is saved under a name and not done again. While it waits, it holds
 * no worker, no lease and no connection; when that is over it is entered anew from the top, and finds what was saved.
 */
export class Context {
  readonly task: Task;
  readonly #environment: Environment;
  readonly #names = new Names();
  readonly #saved: Saved;
  readonly #suspension: Suspension;
  readonly #waiting: Waiting;

  /** @internal */
  constructor(task: Task, environment: Environment, suspension: Suspension) {
    this.task = task;
    this.#environment = environment;
    this.#saved = new Saved(task, environment.calls);
    this.#suspension = suspension;
    this.#waiting = new Waiting(this.#names, this.#saved, suspension, task.results);
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
    return this.#perform(name, options, false, async (step) => this.#saved.save(step, await this.#whole(run)));
  }

  /** Runs the function in a transaction that saves the step, too: its rows are written exactly once. */
  transaction<T>(name: string, run: (client: PoolClient) => T | Promise<T>, options: StepOptions = {}): Promise<T> {
    return this.#perform(name, options, true, (step) =>
      inTransaction(this.#environment.pool(), this.task, async (client) =>
        this.#saved.save(step, await this.#whole(() => run(client)), client),
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
  #perform<T>(name: string, options: StepOptions, transaction: boolean, run: (step: string) => Promise<T>): Promise<T> {
    return handedOut(async () => {
      const { outer } = this.#suspension;
      // With all connections of the pool in outer ones, no inner one would ever get its own.
      if (transaction && outer?.transaction !== undefined)
        throw new Error(
          `transaction "${name}" is within transaction "${outer.transaction}": use the client of that one`,
        );
      const step = this.#names.of(name, options);
      if (this.#saved.has(step)) return this.#saved.get(step) as T;
      const running = { step, transaction: transaction ? step : outer?.transaction };
      return this.#suspension.within(running, () => tracedStep(step, () => run(step)));
    });
  }

  /**
   * Waits until a signal was given, and returns what it says; or until tasks have ended, and returns their results in order.
   * Throws `TimedOut` after the `timeout`, and `Aborted` if the signal was cancelled or has expired, or a task has aborted.
   */
  waitFor<T = unknown>(name: string, options: WaitOptions & TasksToWaitFor): Promise<T[]>;
  waitFor<T = unknown>(name: string, options: WaitOptions & SignalToWaitFor): Promise<T>;
  waitFor(name: string, options: WaitOptions & (SignalToWaitFor | TasksToWaitFor)): Promise<unknown> {
    return handedOut(async () => {
      const elements = "signal" in options ? [signalElement(options)] : options.tasks.map((id) => ({ id: idOf(id) }));
      const ids = elements.map(({ id }) => String(id));
      const results = await this.#waiting.results(name, options, {
        known: () => ids,
        elements: () => elements,
      });
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
    const known = (step: string) => this.#saved.get(`${step}:tasks`) as string[] | undefined;
    const insert = (step: string) => this.#saved.insert(step, bodies, { ...keys, action }, this.#environment.check);
    const kind: Kind = {
      inserts: true,
      known,
      elements: async (step) => (known(step) ?? (await insert(step))).map((id) => ({ id })),
    };
    return handedOut(() => this.#waiting.results(name, { unique, timeout }, kind, returnAborted));
  }

  /** Waits for so long. */
  sleep(name: string, duration: Duration, options: StepOptions = {}): Promise<void> {
    const kind: Kind = { sleeps: true, known: () => undefined, elements: () => [] };
    return handedOut(async () => void (await this.#waiting.results(name, { ...options, timeout: duration }, kind)));
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

function signalElement({ signal, action, expiresIn, expiresAt }: SignalToWaitFor): Json {
  const expires = (key: string, value: unknown) => (value === undefined ? undefined : encodeKey(key, value));
  const expires_in = expires("expiresIn", expiresIn);
  return { id: signal, signal: true, action, expires_in, expires_at: expires("expiresAt", expiresAt) };
}
