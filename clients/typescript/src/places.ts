import { Batch } from "./batch.js";
import { forTimer } from "./encode.js";
import type { Environment } from "./environment.js";
import { describe, guarded, Lost } from "./errors.js";
import type { Registered } from "./handlers.js";
import type { Performance, Said } from "./performance.js";
import type { Task } from "./task.js";
import type { Duration, Logger } from "./types.js";

/** How `App.work` works. */
export interface WorkOptions {
  /** At most so many handlers run at once. 10. */
  concurrency?: number;
  /**
   * So many more tasks may be in hand that wait for their turn here. It pays for handlers of a millisecond or less: they do
   * not wait for a round trip then. A task that waits here is kept from other workers, and not overtaken by one of a higher
   * priority. 0.
   */
  prefetch?: number;
  /** Only tasks of these of the registered actions. */
  actions?: string[];
  /** End when there is nothing to do. */
  untilIdle?: boolean;
  /** How long running handlers have to end once the worker stops. 30 seconds. */
  grace?: Duration;
  /**
   * So long after a worker that a signal has stopped the process ends, with 0, if a handler still runs then. Absent: not before
   * that handler has ended. In the meantime the program may close what it has opened.
   */
  exitAfter?: Duration;
  /** Whether SIGTERM and SIGINT stop the worker, and a second one ends it at once. True. */
  signals?: boolean;
  /** Told of the errors of handlers, unless the task is lost or the worker stops it: for a service that collects errors. */
  onError?: (error: unknown, task: Task) => void;
}

/** When a task may come back that was granted while an earlier try of it still runs here. */
const STILL_RUNS = "1 second";
/** The same of a task whose steps or results could not be read. */
const UNREAD = "10 seconds";

/** What waits for its turn, and what it waits for besides: its own lease. */
interface Prefetched {
  performance: Performance;
  registered: Registered;
  extended: Promise<void> | undefined;
}

/** What the places ask of the worker, and tell it. */
export interface Host {
  /** Whether handlers still begin. */
  begins(): boolean;
  /** In milliseconds. */
  grace(): number;
  /** A performance is over, with this return or with none. */
  end(performance: Performance, said: Said): void;
  /** It is lost, and its handler does not end. */
  drop(performance: Performance): void;
  fail(error: unknown): void;
}

/** The places in which handlers run, as many as the concurrency, and what waits for one. */
export class Places {
  readonly #environment: Environment;
  readonly #options: WorkOptions;
  readonly #concurrency: number;
  readonly #log: Logger;
  readonly #host: Host;
  #waiting: Prefetched[] = [];
  /** Handlers that have a place. */
  #running = 0;
  /** With them those that have lost it and still run. */
  performing = 0;

  constructor(environment: Environment, options: WorkOptions, log: Logger, host: Host) {
    this.#environment = environment;
    this.#options = options;
    this.#concurrency = options.concurrency ?? 10;
    this.#log = log;
    this.#host = host;
  }

  /** Has it wait for its turn. */
  add(granted: Prefetched): void {
    this.#waiting.push(granted);
  }

  /** What waits for its turn goes back, as though it had not been claimed. */
  clear(): void {
    for (const { performance } of this.#waiting.splice(0)) {
      this.#host.end(performance, performance.givenBack());
    }
  }

  /** Begins what waits for its turn while there are places. */
  fill(): void {
    while (this.#host.begins() && this.#running < this.#concurrency) {
      const next = this.#waiting.shift();
      if (!next) return;
      const together = [next, ...this.#others(next.registered)];
      const begun = together.filter(({ performance }) => this.#mayBegin(performance));
      const batch = next.registered.size > 1 ? new Batch(begun.map(({ performance }) => performance.task)) : undefined;
      for (const one of begun) {
        one.performance.task.batch = batch;
        this.#start(one);
      }
    }
  }

  /** What is performed together with the next one. */
  #others({ size, action }: Registered): Prefetched[] {
    const most = Math.min(size, this.#concurrency - this.#running) - 1;
    if (most <= 0) return [];
    const others = this.#waiting.filter(({ registered }) => registered.action === action).slice(0, most);
    this.#waiting = this.#waiting.filter((each) => !others.includes(each));
    return others;
  }

  /** Whether a task still is to be performed here; what is not goes back. */
  #mayBegin(performance: Performance): boolean {
    if (performance.task.lost) this.#host.end(performance, {});
    else if (performance.isShortOfTime)
      this.#host.end(performance, performance.givenBack("given back: too little of its max_run_time was left"));
    // An earlier try runs on here after its end: the next one begins when that has ended, here or elsewhere.
    else if (this.#environment.running.has(performance.task.id))
      this.#host.end(performance, performance.givenBack("given back: an earlier try still runs", STILL_RUNS));
    return !performance.ended;
  }

  #start(one: Prefetched): void {
    const { task } = one.performance;
    let grace: NodeJS.Timeout | undefined;
    let inPlace = true;
    const leave = () => {
      clearTimeout(grace);
      if (inPlace) this.#running--;
      inPlace = false;
      this.fill();
    };
    // A handler that does not heed its signal keeps its place for the grace.
    task.onAbort = () => {
      if (!task.lost) return;
      grace = setTimeout(() => {
        leave();
        this.#host.drop(one.performance);
      }, forTimer(this.#host.grace()));
      grace.unref();
    };
    this.#environment.running.add(task.id);
    this.#running++;
    this.performing++;
    this.#perform(one)
      .finally(() => {
        task.batch?.leave(task);
        this.#environment.running.delete(task.id);
        this.performing--;
        leave();
      })
      .catch((error) => this.#host.fail(error));
  }

  async #perform({ performance, registered, extended }: Prefetched): Promise<void> {
    if (extended) {
      await extended;
      if (performance.ended) return;
      // A worker that has been stopped meanwhile begins nothing.
      if (performance.task.lost || !this.#host.begins())
        return this.#host.end(performance, performance.task.lost ? {} : performance.givenBack());
    }
    const { calls } = this.#environment;
    const unread = await performance.complete(registered, calls).catch((error) => ({ error }));
    if (unread) {
      const status = `given back: its steps or results could not be read: ${describe(unread.error)}`;
      return this.#host.end(performance, performance.givenBack(status, UNREAD));
    }
    if (performance.ended) return;
    const ending = await performance.run(registered, this.#environment);
    const { error } = ending;
    // The refusal of the return tells of one that is lost.
    const lost = guarded(() => error instanceof Lost, false);
    if ("error" in ending && !performance.task.aborted && !lost) {
      performance.failure = { error };
      this.#report(error, performance.task);
    }
    const { action, id, numTries } = performance.task;
    const how = "error" in ending ? "failed" : (ending.outcome?.status_code ?? "completed");
    this.#log.debug?.(`${action} "${id}": try ${numTries} ${how}`, { action, taskId: id, numTries });
    this.#host.end(performance, ending);
  }

  /** What `onError` throws must not end the worker. */
  #report(error: unknown, task: Task): void {
    const failed = (reason: unknown) => this.#log.error(`onError: ${describe(reason)}`);
    try {
      // It may be a function that returns a promise.
      Promise.resolve(this.#options.onError?.(error, task)).catch(failed);
    } catch (reason) {
      failed(reason);
    }
  }
}
