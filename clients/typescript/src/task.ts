import type { Batch } from "./batch.js";
import type { Calls } from "./calls.js";
import { interval } from "./durations.js";
import { decodeBody, encodeTask, jsonOf, toJson } from "./encode.js";
import { isUnstorable, Lost, messageOf, Reject, sqlState } from "./errors.js";
import { runOn } from "./queryable.js";
import type { Granted, GrantedResult } from "./queue.js";
import type { DependencyResult, Duration, NewTask, Queryable } from "./types.js";

/** What a return may say besides the result. */
export interface CompleteOptions {
  /** A text for people. */
  status?: string;
  /** Tasks that are inserted in the transaction that completes this one. */
  children?: NewTask[];
  /** What waits for this task waits for the children, too. */
  childrenBlock?: boolean;
  /** Neither the children nor the dependents are performed before that. */
  delayChildren?: Duration;
  /** Holds back every task of this task's workgroup for so long. */
  delayWorkgroup?: Duration;
}

/** Returned by a handler that has more to say than its result: `return new Complete(result, { children })`. */
export class Complete<Result = unknown> {
  readonly result: Result;
  readonly options: CompleteOptions;

  constructor(result: Result, options: CompleteOptions = {}) {
    this.result = result;
    this.options = options;
  }
}

/** One performance of a task, as its handler sees it. */
export class Task {
  readonly id: string;
  /** Names this performance. Any process that has it and the id may report, extend and return. */
  readonly token: string;
  readonly action: string;
  /** The body as it is stored, before it is read as JSON. */
  readonly bodyText: string | null;
  readonly priority: number;
  readonly metadata: Record<string, unknown>;
  /** Tries so far, this one included. */
  readonly numTries: number;
  /** How many of its dependencies have aborted. */
  readonly numFailures: number;
  /** What an earlier try has saved with {@link report}. */
  readonly checkpoint: unknown;
  /** What its dependencies have left; for actions that are registered with `results: true`, and workflows. */
  results: DependencyResult[];
  /** @internal The steps that a workflow has saved. */
  steps: Record<string, unknown>;
  readonly #calls: Calls;
  /** @internal With which it is performed together. */
  batch: Batch<Task> | undefined;
  /** @internal Told when the signal is aborted, before the handler is. */
  onAbort: (() => void) | undefined;
  #completed = false;
  #aborted: Error | undefined;
  #controller: AbortController | undefined;

  /** @internal */
  constructor(granted: Granted, calls: Calls) {
    this.id = granted.task_id;
    this.token = granted.token;
    this.action = granted.action;
    this.bodyText = granted.body;
    this.priority = granted.priority;
    this.metadata = granted.metadata ?? {};
    this.numTries = granted.num_tries;
    this.numFailures = granted.num_failures;
    this.checkpoint = granted.checkpoint;
    this.results = resultsOf(granted.results ?? []);
    this.steps = granted.steps ?? {};
    this.#calls = calls;
  }

  /** The body as the handler gets it, if no schema changes it. */
  get body(): unknown {
    return decodeBody(this.bodyText);
  }

  /** The body as a text: the one that was inserted, or the JSON of what was no text. */
  get text(): string | null {
    const { body } = this;
    return typeof body === "string" ? body : this.bodyText;
  }

  /**
   * Aborted when the result is of no use any more: the task was cancelled or taken over (the reason is a `Lost`), or
   * the worker stops and the grace is over, or has failed (a `WorkerStopped`).
   */
  get signal(): AbortSignal {
    // Made when it is asked for: many handlers do not, and it costs more than the rest of a task.
    this.#controller ??= new AbortController();
    if (this.#aborted) this.#controller.abort(this.#aborted);
    return this.#controller.signal;
  }

  /** @internal Why the signal is aborted. */
  get aborted(): Error | undefined {
    return this.#aborted;
  }

  /** @internal What heeds its signal ends early and throws nothing: what it has made then is no result. */
  throwIfAborted(): void {
    if (this.#aborted) throw this.#aborted;
  }

  /** @internal Tells the handler to end. */
  abort(reason: Error): void {
    if (this.#aborted) return;
    this.#aborted = reason;
    this.onAbort?.();
    this.#controller?.abort(this.#aborted);
  }

  /** Whether the task was cancelled, deleted or taken over. What the handler returns is dropped then. */
  get lost(): boolean {
    return this.#aborted instanceof Lost;
  }

  /** Says how far it is (0 to 1), and saves a checkpoint, which comes with the next try if there is one. */
  async report(report: { status?: string; progress?: number; checkpoint?: unknown }): Promise<void> {
    const checkpoint = jsonOf(report.checkpoint, "checkpoint") ?? null;
    const { status = null, progress = null } = report;
    const values = [this.id, this.token, status, progress, checkpoint];
    await this.held(this.#calls.call("SELECT taskq.report_status($1, $2, $3, $4, $5::jsonb)", values));
  }

  /**
   * Completes the task in a transaction of the handler's own, whose rows and the completion are one then. Call it last in
   * that transaction. What the handler returns afterwards counts for nothing. If the transaction is rolled back all the
   * same, the task is given back for another try.
   */
  async complete({
    client,
    result,
    ...options
  }: { client: Queryable; result?: unknown } & CompleteOptions): Promise<void> {
    await this.held(completeOn(client, this, new Complete(result, options)));
    this.#completed = true;
  }

  /** @internal A call in the name of this performance: the queue refuses it when that does not hold the task any more. */
  async held<T>(call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      if (sqlState(error) !== "TQ001") throw error;
      throw new Lost(`task "${this.id}" is not ours any more`, { cause: error });
    }
  }

  /** @internal Whether {@link complete} was called. */
  get wasCompleted(): boolean {
    return this.#completed;
  }
}

/** What dependencies have left, from the rows that tell it. */
export function resultsOf(rows: GrantedResult[]): DependencyResult[] {
  return rows.map((row) => ({
    taskId: row.task_id,
    action: row.action,
    statusCode: row.status_code,
    status: row.status,
    result: row.result,
  }));
}

/** Completes a task in the transaction of a client. */
async function completeOn(client: Queryable, task: Task, { result, options }: Complete): Promise<void> {
  const { status, children, childrenBlock, delayChildren, delayWorkgroup } = options;
  const all: [string, string | undefined][] = [
    ["status => $::text", status],
    ["result => $::text::jsonb", toJson(result)],
    ["children => $::text::jsonb", children && toJson(children.map(encodeTask), "children")],
    ["children_block => $::text::boolean", childrenBlock === undefined ? undefined : String(childrenBlock)],
    ["delay_children => $::text::interval", delayChildren && interval(delayChildren)],
    ["delay_workgroup => $::text::interval", delayWorkgroup && interval(delayWorkgroup)],
  ];
  const given = all.filter(([, value]) => value !== undefined) as [string, string][];
  const list = given.map(([argument], n) => `, ${argument.replace("$", `$${n + 3}`)}`).join("");
  const values = [task.id, task.token, ...given.map(([, value]) => value)];
  const text = `SELECT taskq.return_task($1::text, $2::text::uuid, 'completed'${list})`;
  await stored("result", runOn(client, text, values));
}

/** What the server cannot store is refused for good: no retry makes another value. */
export async function stored<T>(what: string, call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw isUnstorable(error) ? new Reject(`the ${what} cannot be stored: ${messageOf(error)}`) : error;
  }
}
