import { interval, toJson } from "./encode.js";
import type { Environment } from "./environment.js";
import { describe, printable, Reject, Retry, sqlState, WorkerStopped } from "./errors.js";
import type { Registered } from "./handlers.js";
import type { Link } from "./link.js";
import type { Granted, Return } from "./queue.js";
import { Task } from "./task.js";
import { type Ending, tracedPerformance } from "./telemetry.js";

/** A task in hand: from its grant until it is returned. */
export class Performance {
  readonly task: Task;
  #outcome: Return | undefined;
  #ended = false;
  #refused = false;

  constructor(granted: Granted, calls: Link) {
    this.task = new Task(granted, calls);
  }

  /** What is returned. None if the handler has returned the task by itself. */
  get outcome(): Return | undefined {
    return this.#outcome;
  }

  /** Whether it is over, and waits to be returned. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Whether the queue has refused its return already. */
  get refused(): boolean {
    return this.#refused;
  }

  /** Runs the handler; what it throws becomes an outcome. */
  run(registered: Registered, environment: Environment): Promise<Ending> {
    return tracedPerformance(this.task, async () => {
      try {
        const outcome = await registered.perform(this.task, environment);
        if (outcome?.result !== undefined) toJson(outcome.result);
        return { outcome };
      } catch (error) {
        return { outcome: this.#outcomeOf(error), error };
      }
    });
  }

  end(outcome: Return | undefined): void {
    this.#ended = true;
    this.#outcome = outcome;
  }

  /** The return of a worker that stops: the task has not failed, so the try does not count. */
  givenBack(): Return {
    return { status_code: "pending", status: "given back by a worker that stops", count_try: false };
  }

  /** Makes another return of one that the queue refuses as a whole. */
  refuse(error: unknown): void {
    this.#refused = true;
    const status = printable(`its return was refused: ${(error as Error).message}`);
    // A result that a jsonb cannot hold will be the same after the next try. For the rest the queue may have changed by then.
    const status_code =
      sqlState(error)?.startsWith("22") && this.#outcome?.result !== undefined ? "aborted" : "pending";
    this.#outcome = { status_code, status };
  }

  /** The element of `returns`. */
  toJson(): string {
    return JSON.stringify({ task_id: this.task.id, token: this.task.token, ...this.#outcome });
  }

  #outcomeOf(error: unknown): Return {
    if (error instanceof Reject) return { status_code: "aborted", status: printable(error.message) };
    if (this.task.aborted instanceof WorkerStopped) return this.givenBack();
    if (error instanceof Retry) {
      const { after, countTry, delayWorkgroup } = error.options;
      return {
        status_code: "pending",
        status: printable(error.message),
        retry_after: after === undefined ? undefined : interval(after),
        count_try: countTry,
        delay_workgroup: delayWorkgroup === undefined ? undefined : interval(delayWorkgroup),
      };
    }
    // When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
    return { status_code: "pending", status: describe(error) };
  }
}
