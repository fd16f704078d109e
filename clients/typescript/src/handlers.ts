import type { PoolClient } from "pg";
import type { Batch } from "./batch.js";
import { Context } from "./context.js";
import { interval } from "./durations.js";
import { encodeTask, settingsOf } from "./encode.js";
import { type Environment, inTransaction } from "./environment.js";
import { messageOf, Reject } from "./errors.js";
import type { Return } from "./queue.js";
import { Suspension } from "./suspension.js";
import { Complete, type Task } from "./task.js";
import type { ActionSettings, Duration, Schema, SchemaResult } from "./types.js";

/** What a handler returns: the result, or a {@link Complete} that has more to say. */
export type Answer<Result> = Result | Complete<Result> | Promise<Result | Complete<Result>>;

/** Performs the tasks of an action. */
export type Handler<Body, Result> = (body: Body, task: Task) => Answer<Result>;

/** Performs a task inside the transaction that completes it. */
export type TransactionalHandler<Body, Result> = (body: Body, task: Task, client: PoolClient) => Answer<Result>;

/** A function that is left while it waits, and entered again. */
export type Workflow<Body, Result> = (ctx: Context, body: Body) => Answer<Result>;

/** Performs tasks together: returns their results in order, or by id; an error in a result's place fails that task alone. */
export type BatchHandler<Body, Result> = (
  tasks: (Task & { readonly body: Body })[],
) => Results<Result> | Promise<Results<Result>>;

/** What a batch returns; nothing: each task is completed without a result. */
export type Results<Result> =
  | (Result | Complete<Result> | Error)[]
  | Map<string, Result | Complete<Result> | Error>
  | Record<string, Result | Complete<Result> | Error>
  // biome-ignore lint/suspicious/noConfusingVoidType: what a function without a return returns.
  | void;

/** What a registration says of an action: with the settings that `App.setup` writes, over all workers. */
export interface ActionOptions<Body = unknown> extends Omit<ActionSettings, "clear"> {
  /** For how long the death of a worker goes unnoticed. Heartbeats extend it while the handler runs. 1 minute. */
  lease?: Duration;
  /** What the body must look like. A body that does not fit aborts the task: no retry helps. */
  schema?: Schema<Body>;
  /** The handler gets the text that was inserted, also where that is JSON, such as `123`. */
  text?: boolean;
  /** Errors of these classes abort the task. */
  abortOn?: ErrorClass[];
}

/** A class of errors. */
export type ErrorClass = abstract new (...args: any[]) => Error;

/** What the registration of a plain handler says besides. */
export interface HandlerOptions<Body = unknown> extends ActionOptions<Body> {
  /** Fill `task.results` with what the dependencies have left. */
  results?: boolean;
}

/** What the registration of a batch says besides. A `schema` is asked whether a body fits; the handler gets what is stored. */
export interface BatchOptions<Body = unknown> extends HandlerOptions<Body> {
  /** One call takes so many at most: of what was granted together, so no more than the worker's `concurrency`. 100. */
  size?: number;
}

/** A registered action. */
export interface Registered {
  action: string;
  lease: string;
  schema?: Schema<any>;
  results: boolean;
  steps: boolean;
  /** How many tasks one call performs at most. */
  size: number;
  abortOn: ErrorClass[];
  /** Those of `taskq.set_action`. */
  settings: ActionSettings;
  /** Performs a task. No return: it has returned the task itself. */
  perform(task: Task, environment: Environment): Promise<Return | undefined>;
}

/** The registration of a handler of any kind. */
export function register(
  action: string,
  options: BatchOptions<any> & { transactional?: boolean },
  kind: Partial<Registered> & Pick<Registered, "perform">,
): Registered {
  const { lease = "1 minute", schema, results = false, abortOn = [], ...more } = options;
  const { size, text, transactional, ...settings } = more;
  settingsOf(settings); // which refuses what is none
  return {
    action,
    lease: interval(lease),
    schema,
    results,
    steps: false,
    size: 1,
    abortOn,
    settings,
    ...kind,
  };
}

/** What a handler says of the bodies that it takes. */
type Takes = Pick<ActionOptions<any>, "schema" | "text">;

/** A handler that is run as it is. */
export function plain(handler: Handler<any, unknown>, takes: Takes): Registered["perform"] {
  return async (task) => {
    const answer = await handler(await bodyOf(task, takes), task);
    return task.wasCompleted ? ROLLED_BACK : completed(answer);
  };
}

/** A handler that performs several tasks with one call. */
export function together(handler: BatchHandler<any, unknown>, takes: Takes): Registered["perform"] {
  return async (task) => {
    await bodyOf(task, takes);
    const answer = await (task.batch as Batch<Task>).perform(task, handler as (tasks: Task[]) => unknown);
    return task.wasCompleted ? ROLLED_BACK : completed(answer);
  };
}

/**
 * What is returned of a task that its handler has completed. If that transaction was committed, this is refused. If it was
 * not, the task is there for another try.
 */
const ROLLED_BACK: Return = {
  status_code: "pending",
  status: "the transaction that completed it was rolled back",
};

/** A handler that is run inside the transaction that completes the task. */
export function transactional(handler: TransactionalHandler<any, unknown>, takes: Takes): Registered["perform"] {
  return async (task, { pool }) => {
    const body = await bodyOf(task, takes);
    return inTransaction(pool(), task, async (client) => {
      const answer = await handler(body, task, client);
      // Its handler may have done it, and in another transaction.
      if (task.wasCompleted) return ROLLED_BACK;
      task.throwIfAborted();
      const { result, options } = answer instanceof Complete ? answer : new Complete(answer);
      await task.complete({ client, result, ...options });
      return undefined;
    });
  };
}

/** A workflow: run until it ends, or until it waits. */
export function durable(workflow: Workflow<any, unknown>, takes: Takes): Registered["perform"] {
  return async (task, environment) => {
    const suspension = new Suspension(task);
    const context = new Context(task, environment, suspension);
    const body = await bodyOf(task, takes);
    const forgotten = (names: string) =>
      environment.log.warn(
        `${task.action} "${task.id}": it has returned beside ${names}, and waits for that all the same`,
        { action: task.action, taskId: task.id, numTries: task.numTries },
      );
    const run = async () => {
      const answer = await workflow(context, body);
      return (await suspension.forgotten(forgotten)) ?? completed(answer);
    };
    try {
      // While it waits, the function just does not go on: no error passes through its catch and finally blocks.
      return await Promise.race([suspension.suspended, run()]);
    } catch (error) {
      suspension.leave();
      await suspension.quiet;
      throw error;
    } finally {
      suspension.end();
    }
  };
}

/** The return of what has ended. */
export function completed(answer: unknown): Return {
  if (!(answer instanceof Complete)) return { status_code: "completed", result: answer };
  const { status, children, childrenBlock, delayChildren, delayWorkgroup } = answer.options;
  return {
    status_code: "completed",
    result: answer.result,
    status,
    children: children?.map(encodeTask),
    children_block: childrenBlock,
    delay_children: delayChildren === undefined ? undefined : interval(delayChildren),
    delay_workgroup: delayWorkgroup === undefined ? undefined : interval(delayWorkgroup),
  };
}

/** What the handler of a task gets. */
function bodyOf(task: Task, { schema, text = false }: Takes): Promise<any> {
  return fit(text ? task.text : task.body, schema);
}

/** A body that a schema takes, as it makes it. */
export async function fit<Body>(body: unknown, schema: Schema<Body> | undefined): Promise<Body> {
  if (schema === undefined) return body as Body;
  if (!("~standard" in schema)) {
    try {
      return schema(body);
    } catch (error) {
      throw new Reject(`the body does not fit: ${messageOf(error)}`);
    }
  }
  const result: SchemaResult<Body> = await schema["~standard"].validate(body);
  if (result.issues === undefined) return result.value;
  throw new Reject(`the body does not fit: ${result.issues.map((issue) => issueText(issue)).join("; ")}`);
}

function issueText({ path, message }: { message: string; path?: ReadonlyArray<unknown> }): string {
  const keys = (path ?? []).map((part) => String((part as { key?: unknown } | null)?.key ?? part));
  return keys.length === 0 ? message : `${keys.join(".")}: ${message}`;
}
