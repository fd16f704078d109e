import { interval } from "./durations.js";
import { forTimer, toJson } from "./encode.js";
import type { Environment } from "./environment.js";
import { describe, isUnstorable, messageOf, printable, Reject, Retry, WorkerStopped } from "./errors.js";
import type { Registered } from "./handlers.js";
import type { Link } from "./link.js";
import type { Granted, Queue, Return } from "./queue.js";
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

  constructor(granted: Granted, calls: Link) {
    this.task = new Task(granted, calls);
    this.#incomplete = granted.incomplete;
  }

  /** Reads what was too large for the grant. To the handler nothing is ever missing. */
  async complete({ results, steps }: Registered, queue: Queue): Promise<void> {
    if (!this.#incomplete) return;
    if (results) this.task.results = resultsOf(await queue.results(this.task.id));
    if (steps) this.task.steps = await queue.steps(this.task.id);
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
        const outcome = await registered.perform(this.task, environment);
        if (outcome === undefined) return {};
        // A handler that heeds its signal returns early, and one that has caught what stopped it returns that: no results.
        // Nor has it failed if it has rolled back its completion. Only a workflow that waits has said what is to be kept.
        const stopped = this.task.aborted instanceof WorkerStopped && !outcome.depends_on;
        return this.#said(stopped ? this.#givenBack() : outcome);
      } catch (error) {
        return { ...this.#failed(error), error };
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

  #failed(error: unknown): Said {
    try {
      return this.#said(this.#outcomeOf(error));
    } catch {
      // A `Retry` may have options that are no JSON.
      return this.#said({ status_code: "pending", status: describe(error) });
    }
  }

  #givenBack(status = STOPS): Return {
    return { status_code: "pending", status, count_try: false };
  }

  #outcomeOf(error: unknown): Return {
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
    // When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
    return { status_code: "pending", status: describe(error) };
  }
}
