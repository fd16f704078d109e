import type { Calls } from "./calls.js";
import { interval } from "./durations.js";
import { forTimer, toJson } from "./encode.js";
import { type Environment, performing } from "./environment.js";
import {
  describe,
  guarded,
  isUnstorable,
  Leave,
  messageOf,
  printable,
  Reject,
  Retry,
  WorkerStopped,
} from "./errors.js";
import { completed, type Registered } from "./handlers.js";
import type { Granted, Return } from "./queue.js";
import { resultsOf, Task } from "./task.js";
import { type Ending, tracedPerformance } from "./telemetry.js";

const STOPS = "given back by a worker that stops";

/** A return, and its text. */
export interface Said {
  text?: string;
  outcome?: Pick<Return, "status_code" | "depends_on">;
}

/** A task in hand: from its grant until it is returned. */
export class Performance {
  readonly task: Task;
  /** The element of `returns`, as text: what the handler has made is asked for its parts once. */
  #text: string | undefined;
  #code: Return["status_code"] | undefined;
  #ended = false;
  #refused = false;
  /** Whether its return goes a way of its own, and leaves it in hand until then. */
  late = false;
  /** What its handler has thrown, if the log is to tell it once the try is returned. */
  failure: { error: unknown } | undefined;
  /** Whether results or steps are still to be read: they were too large for the grant. */
  readonly #incomplete: boolean;
  readonly #begun = performance.now();
  #runTimeEnds = Number.POSITIVE_INFINITY;
  #runTimer: NodeJS.Timeout | undefined;

  /** When it was granted or extended last, by this process' clock. */
  extendedAt = Date.now();

  constructor(granted: Granted, calls: Calls) {
    this.task = new Task(granted, calls);
    this.#incomplete = granted.incomplete;
  }

  /** Reads what was too large for the grant, row by row. To the handler nothing is ever missing. */
  async complete({ results, steps }: Registered, calls: Calls): Promise<void> {
    if (!this.#incomplete) return;
    const { task } = this;
    if (results) task.results = resultsOf(await calls.call("SELECT * FROM taskq.dependency_results($1)", [task.id]));
    if (!steps) return;
    const rows = await calls.call("SELECT step, result FROM taskq.steps WHERE task_id = $1", [task.id]);
    task.steps = Object.fromEntries(rows.map(({ step, result }) => [step, result]));
  }

  /** In so many milliseconds its run time is over, and `tell` is called then; undefined: not within its lease. */
  endsIn(milliseconds: number | undefined, tell: () => void): void {
    clearTimeout(this.#runTimer);
    this.#runTimeEnds = performance.now() + (milliseconds ?? Number.POSITIVE_INFINITY);
    if (milliseconds === undefined || this.#ended) return;
    // A moment later: a clock of the queue that is frozen does not get there.
    this.#runTimer = setTimeout(tell, forTimer(Math.max(milliseconds, 10)));
  }

  /** Whether its run time is over. */
  get outOfTime(): boolean {
    return performance.now() >= this.#runTimeEnds - 100;
  }

  /** Whether less than half of its run time is left: what has waited for so long in the worker does not begin. */
  get isShortOfTime(): boolean {
    return performance.now() > (this.#begun + this.#runTimeEnds) / 2;
  }

  /** What is returned, as JSON text. None if the handler has returned the task itself. */
  get text(): string | undefined {
    return this.#text;
  }

  /** Whether it is over, and waits to be returned. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Whether the queue has refused its return already. */
  get refused(): boolean {
    return this.#refused;
  }

  /** Runs the handler. Whatever it returns or throws becomes a text here, and this does not throw. */
  run(registered: Registered, environment: Environment): Promise<Ending & Said> {
    return tracedPerformance(this.task, async () => {
      try {
        const outcome = await performing.run(this.task, () => around(this.task, registered, environment));
        if (outcome === undefined) return {};
        // A handler that heeds its signal returns early, and one that has caught what stopped it returns that: no results.
        // Nor has it failed if it has rolled back its completion. Only a workflow that waits has said what is to be kept.
        const stopped = this.task.aborted instanceof WorkerStopped && !outcome.depends_on;
        return this.#said(stopped ? this.#givenBack() : outcome);
      } catch (error) {
        // Something else returns it.
        if (guarded(() => error instanceof Leave, false)) return {};
        return { ...this.failed(error, registered), error };
      }
    });
  }

  /** It is over, with this return or with none. */
  end({ text, outcome }: Said): void {
    this.#ended = true;
    clearTimeout(this.#runTimer);
    this.#text = text;
    this.#code = outcome?.status_code;
  }

  /** The return of a worker that does not perform it: the task has not failed, so the try does not count. */
  givenBack(status = STOPS, retryAfter?: string): Said {
    return this.#said({ ...this.#givenBack(status), retry_after: retryAfter });
  }

  /** Makes another return of one that the queue refuses as a whole. */
  refuse(error: unknown): void {
    this.#refused = true;
    const status = printable(`its return was refused: ${messageOf(error)}`);
    // A result that a jsonb cannot hold will be the same after the next try. For the rest the queue may have changed by then.
    const aborts = isUnstorable(error) && this.#code === "completed";
    this.end(this.#said({ status_code: aborts ? "aborted" : "pending", status }));
  }

  #said(outcome: Return): Said {
    const text = toJson({ task_id: this.task.id, token: this.task.token, ...outcome });
    // The result itself is not kept beside its text.
    const { status_code, depends_on } = outcome;
    return { text, outcome: { status_code, depends_on } };
  }

  /** The return of a try that has ended with this error. */
  failed(error: unknown, registered: Registered): Said {
    try {
      return this.#said(this.#outcomeOf(error, registered));
    } catch {
      // A `Retry` may have options that are no JSON.
      return this.#said({ status_code: "pending", status: describe(error) });
    }
  }

  #givenBack(status = STOPS): Return {
    return { status_code: "pending", status, count_try: false };
  }

  #outcomeOf(error: unknown, { abortOn }: Registered): Return {
    if (error instanceof Reject) return { status_code: "aborted", status: messageOf(error) };
    if (this.task.aborted instanceof WorkerStopped) return this.#givenBack();
    if (error instanceof Retry) {
      const { after, countTry, delayWorkgroup } = error.options;
      return {
        status_code: "pending",
        status: messageOf(error),
        retry_after: after === undefined ? undefined : interval(after),
        count_try: countTry,
        delay_workgroup: delayWorkgroup === undefined ? undefined : interval(delayWorkgroup),
      };
    }
    const aborts = abortOn.some((kind) => error instanceof kind);
    // When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
    return { status_code: aborts ? "aborted" : "pending", status: describe(error) };
  }
}

/** Performs a task, with what the program has put around each performance. */
async function around(task: Task, registered: Registered, environment: Environment): Promise<Return | undefined> {
  if (environment.arounds.length === 0) return registered.perform(task, environment);
  let performed: { outcome: Return | undefined } | undefined;
  const perform = async () => {
    performed = { outcome: await registered.perform(task, environment) };
    return performed.outcome?.result;
  };
  const all = environment.arounds.reduceRight<() => Promise<unknown>>(
    (inner, each) => async () => each(task, inner),
    perform,
  );
  const result = await all();
  if (!performed) return completed(result);
  const { outcome } = performed as { outcome: Return | undefined };
  const isOther = outcome?.status_code === "completed" && result !== undefined;
  return isOther ? { ...outcome, result } : outcome;
}
