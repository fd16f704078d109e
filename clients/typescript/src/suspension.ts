import { AsyncLocalStorage } from "node:async_hooks";
import type { Json } from "./encode.js";
import type { Return } from "./queue.js";
import type { Task } from "./task.js";

/** A step that runs. */
export interface Running {
  of: Suspension;
  step: string;
  /** The transaction that it is, or is in. */
  transaction?: string;
  over?: true;
}

/** A wait that the function is in. */
export interface Wait {
  /** In the order of the calls. */
  number: number;
  /** None: nothing but the time. */
  dependsOn: Json[];
  /** In seconds. */
  atMost?: number;
}

/** The step that the code is in. */
const within = new AsyncLocalStorage<Running>();

/** What is running in a workflow, and what it waits for: when the one is nothing, it is suspended for the other. */
export class Suspension {
  /** What the worker returns when the function waits. */
  readonly suspended: Promise<Return>;
  readonly #task: Task;
  readonly #waits: Wait[] = [];
  /** How many waits were called, and how many of them before the last error of one. */
  #calls = 0;
  #failed = 0;
  /** The waits that have not ended. */
  readonly #open = new Map<Promise<unknown>, { name: string; number: number }>();
  #running = 0;
  #quiet: (() => void) | undefined;
  #left = false;
  #over = false;
  #suspend!: (outcome: Return) => void;

  constructor(task: Task) {
    this.#task = task;
    this.suspended = new Promise((resolve) => {
      this.#suspend = resolve;
    });
  }

  /** The step of this workflow that the code is in, while that runs. */
  get outer(): Running | undefined {
    const outer = within.getStore();
    return outer?.of === this && !outer.over ? outer : undefined;
  }

  /** Runs a step. */
  async within<T>(running: Omit<Running, "of">, run: () => Promise<T>): Promise<T> {
    const own: Running = { ...running, of: this };
    return this.busy(async () => {
      try {
        return await within.run(own, run);
      } finally {
        own.over = true;
      }
    });
  }

  /** Runs a wait; it gets its number. */
  wait<T>(name: string, run: (number: number) => Promise<T>): Promise<T> {
    const number = ++this.#calls;
    const waits = run(number);
    const ended = () => void this.#open.delete(waits);
    this.#open.set(waits, { name, number });
    waits.then(ended, ended);
    return waits;
  }

  /** A wait ends with an error. See {@link returned} for those that were called before it. */
  async fail(error: Error): Promise<never> {
    // What is called in the same turn, the rest of a `Promise.all`, comes first.
    await undefined;
    this.#failed = this.#calls;
    throw error;
  }

  /** Counts what is running. */
  async busy<T>(run: () => Promise<T>): Promise<T> {
    const { outer } = this;
    if (this.#left) {
      if (!outer) return never();
      // A step that runs must come to an end: the next try waits for it, and it may have a connection of the pool.
      if (this.#over) throw new Error(`the workflow has ended, and step "${outer.step}" was still running`);
    }
    // A task that is lost, or given back, does nothing more.
    this.#task.throwIfAborted();
    this.#running++;
    try {
      return await run();
    } finally {
      if (--this.#running === 0) this.#quiet?.();
      this.#settle();
    }
  }

  /**
   * Suspends the task. Waits that are asked for together, in a `Promise.all`, are one suspension, for all of them; and it
   * comes when no step is running beside them.
   */
  suspendFor(wait: Wait): Promise<never> {
    this.#waits.push(wait);
    this.#settle();
    return never();
  }

  /** The function has returned: a wait that it has not awaited counts all the same, unless it was given up with one that failed. */
  async forgotten(tell: (names: string) => void): Promise<Return | undefined> {
    const open = [...this.#open].filter(([, { number }]) => number > this.#failed);
    if (open.length === 0) return undefined;
    const ended = Promise.allSettled(open.map(([waits]) => waits));
    const suspended = await Promise.race([this.suspended, ended.then(() => undefined)]);
    if (suspended) tell(open.map(([, { name }]) => `"${name}"`).join(", "));
    return suspended;
  }

  /** The task is suspended, or has failed: what goes on beside that begins nothing more. */
  leave(): void {
    this.#left = true;
  }

  /** The task is returned. */
  end(): void {
    this.leave();
    this.#over = true;
  }

  /** Resolves when no step is running: the next try must not run beside a step of this one. */
  get quiet(): Promise<void> {
    return new Promise((resolve) => {
      this.#quiet = resolve;
      if (this.#running === 0) resolve();
    });
  }

  #settle(): void {
    if (this.#waits.length === 0) return;
    // What follows a step, and may be another one, begins before this.
    setImmediate(() => {
      if (this.#running > 0) return;
      this.leave();
      this.#suspend(returned(this.#waits, this.#failed));
    });
  }
}

/** A new one each time: what awaits it is garbage with it. */
function never(): Promise<never> {
  return new Promise(() => {});
}

/**
 * The return that suspends a task for these waits. A function that goes on to another wait after the error of one has left
 * what it had joined with that: then it waits for the later ones.
 */
function returned(waits: Wait[], failed: number): Return {
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
