import type { Calls } from "./calls.js";
import { interval } from "./durations.js";
import { decodeBody, encodeBody, encodeTask, jsonOf } from "./encode.js";
import { messageOf } from "./errors.js";
import { type Action, Handle } from "./handle.js";
import { fit, type Registered } from "./handlers.js";
import { idOf, Operators } from "./operators.js";
import { runOn } from "./queryable.js";
import { tracedInsert } from "./telemetry.js";
import type { Duration, Id, InsertCall, Logger, NewTask, Queryable, Settled, TaskOptions } from "./types.js";
import { Waits } from "./waits.js";

/** What a program that performs nothing needs: it inserts tasks, gives signals, waits for ends, and looks after the queue. */
export abstract class Producer extends Operators {
  /** What is sent without `client`. */
  protected abstract readonly calls: Calls;
  protected abstract readonly log: Logger;
  protected readonly actions = new Map<string, Registered>();
  /** Actions without a handler that were told of. */
  readonly #unknown = new Set<string>();
  #waits: Waits | undefined;

  /**
   * Inserts a task. The handle is the id of the task that does the work, and tells with `inserted` whether it is a new one:
   * with `onConflict: "skip"` and with `uniqueBy` it may be one that was there.
   */
  async insert<Body, Result = unknown>(
    action: string | Action<Body, Result>,
    body?: Body,
    options: TaskOptions & InsertCall = {},
  ): Promise<Handle<Result>> {
    const [handle] = await this.insertMany<Body, Result>(action, [body as Body], options);
    return handle as Handle<Result>;
  }

  /** Inserts a task for each body, all or none; a handle for each, in the order given. */
  insertMany<Body, Result = unknown>(
    action: string | Action<Body, Result>,
    bodies: Body[],
    options: TaskOptions & InsertCall = {},
  ): Promise<Handle<Result>[]> {
    const { client, onConflict, ifMissing, ...keys } = options;
    return this.insertTasks<Result>(
      bodies.map((body) => ({ ...keys, action, body })),
      { client, onConflict, ifMissing },
    );
  }

  /** Inserts tasks, all or none; a handle for each, in the order given. They may depend on each other. */
  async insertTasks<Result = unknown>(
    tasks: NewTask[],
    { client, onConflict, ifMissing }: InsertCall = {},
  ): Promise<Handle<Result>[]> {
    await this.check(tasks);
    return tracedInsert(
      tasks.map((task) => nameOf(task.action)),
      async () => {
        // Within the span of the insertion, which the tasks carry on.
        const encoded = tasks.map(encodeTask);
        const rows = await this.run(
          client,
          `SELECT task_id, outcome FROM taskq.insert_tasks_report($1::text::jsonb, on_conflict => $2::text, if_missing => $3::text)`,
          [jsonOf(encoded, "task") ?? null, onConflict ?? "error", ifMissing ?? "error"],
        );
        return rows.map((row) => new Handle<Result>(row.task_id, row.outcome !== "skipped", this));
      },
    );
  }

  /** @internal What is known of tasks before they are inserted: whether a handler is here, and whether the body fits it. */
  async check(tasks: NewTask[]): Promise<void> {
    for (const task of tasks) {
      const action = nameOf(task.action);
      const registered = this.actions.get(action);
      if (!registered && this.actions.size > 0 && !task.spontaneous && !task.signal) this.#warnOnce(action);
      if (!registered?.schema) continue;
      // As the handler will get it: a `Date`, for one, is a text by then.
      const stored = encodeBody(task.body ?? null);
      const body = typeof stored === "string" ? decodeBody(stored) : JSON.parse(JSON.stringify(stored));
      await fit(body, registered.schema).catch((error) => {
        throw new TypeError(`action "${action}": ${messageOf(error)}`);
      });
    }
  }

  #warnOnce(action: string): void {
    if (this.#unknown.has(action)) return;
    this.#unknown.add(action);
    const known = [...this.actions.keys()].join(", ");
    this.log.warn(`action "${action}" has no handler in this app, which has ${known}`, { action });
  }

  /**
   * Gives a signal: whatever waits for it goes on. Returns whether this call has given it; the first one wins. It may come
   * before anything waits for it.
   */
  async signal(
    id: Id,
    result?: unknown,
    options: { status?: string; action?: string; retention?: Duration; client?: Queryable } = {},
  ): Promise<boolean> {
    const [row] = await this.run(
      options.client,
      `SELECT taskq.signal($1::text, $2::text::jsonb, $3::text, coalesce($4::text, 'signal'), $5::text::interval) AS given`,
      [
        idOf(id),
        jsonOf(result, "result") ?? null,
        options.status ?? null,
        options.action ?? null,
        options.retention === undefined ? null : interval(options.retention),
      ],
    );
    return row.given;
  }

  /**
   * Waits until a task has settled, and tells how; throws `TimedOut` if the time is up first (10 seconds). One connection waits
   * for all such calls of an app.
   */
  async wait<Result = unknown>(
    task: Id,
    { timeout = "10 seconds" }: { timeout?: Duration } = {},
  ): Promise<Settled<Result>> {
    this.#waits ??= new Waits(this.calls);
    return this.#waits.wait(idOf(task), interval(timeout));
  }

  /** Fails what waits. */
  protected waitNoMore(): void {
    this.#waits?.close();
  }

  /** It is sent once: an insertion is not repeated. */
  protected run(client: Queryable | undefined, text: string, values: (string | null)[]): Promise<any[]> {
    return client ? runOn(client, text, values) : this.calls.query(text, values);
  }
}

/** The name of an action that is given by it, or as what its registration returned. */
export function nameOf(action: string | { readonly action: string }): string {
  return typeof action === "string" ? action : action.action;
}
