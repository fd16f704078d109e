import type { PoolClient } from "pg";
import { Context } from "./context.js";
import { interval } from "./durations.js";
import { encodeTask } from "./encode.js";
import { type Environment, inTransaction } from "./environment.js";
import { messageOf, Reject } from "./errors.js";
import type { Return } from "./queue.js";
import { Complete, type Task } from "./task.js";
import type { Duration, Schema, SchemaResult } from "./types.js";

/** What a handler returns: the result, or a {@link Complete} that has more to say. */
export type Answer<Result> = Result | Complete<Result> | Promise<Result | Complete<Result>>;

/** Performs the tasks of an action. */
export type Handler<Body, Result> = (body: Body, task: Task) => Answer<Result>;

/** Performs a task inside the transaction that completes it. */
export type TransactionalHandler<Body, Result> = (
  body: Body,
  task: Task,
  client: PoolClient,
) => Answer<Result>;

/** A function that is left while it waits, and entered again. */
export type Workflow<Body, Result> = (ctx: Context, body: Body) => Answer<Result>;

/** What a registration says of an action. */
export interface ActionOptions<Body = unknown> {
  /** For how long the death of a worker goes unnoticed. Heartbeats extend it while the handler runs. 1 minute. */
  lease?: Duration;
  /** At most so many at once in this process. Limits over all processes are `taskq.set_action`'s. */
  maxConcurrency?: number;
  /** What the body must look like. A body that does not fit aborts the task: no retry helps. */
  schema?: Schema<Body>;
}

/** What the registration of a plain handler says besides. */
export interface HandlerOptions<Body = unknown> extends ActionOptions<Body> {
  /** Fill `task.results` with what the dependencies have left. */
  results?: boolean;
}

/** A registered action. */
export interface Registered {
  action: string;
  lease: string;
  maxConcurrency: number;
  schema?: Schema<any>;
  results: boolean;
  steps: boolean;
  /** Performs a task. No return: it has returned the task itself. */
  perform(task: Task, environment: Environment): Promise<Return | undefined>;
}

/** The registration of a handler of any kind. */
export function register(
  action: string,
  options: HandlerOptions<any>,
  kind: Partial<Registered> & Pick<Registered, "perform">,
): Registered {
  const { lease = "1 minute", maxConcurrency = Number.POSITIVE_INFINITY, results = false } = options;
  if (
    !(
      maxConcurrency >= 1 &&
      (Number.isInteger(maxConcurrency) || maxConcurrency === Number.POSITIVE_INFINITY)
    )
  )
    throw new RangeError(`action "${action}": maxConcurrency is no positive integer`);
  return {
    action,
    lease: interval(lease),
    maxConcurrency,
    schema: options.schema,
    results,
    steps: false,
    ...kind,
  };
}

/** A handler that is run as it is. */
export function plain<Body>(handler: Handler<Body, unknown>, schema?: Schema<Body>): Registered["perform"] {
  return async (task) => {
    const answer = await handler(await fit(task.body, schema), task);
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
export function transactional<Body>(
  handler: TransactionalHandler<Body, unknown>,
  schema?: Schema<Body>,
): Registered["perform"] {
  return async (task, { pool }) => {
    const body = await fit(task.body, schema);
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
export function durable<Body>(
  workflow: Workflow<Body, unknown>,
  schema?: Schema<Body>,
): Registered["perform"] {
  return async (task, environment) => {
    const context = new Context(task, environment);
    const body = await fit(task.body, schema);
    try {
      // While it waits, the function just does not go on: no error passes through its catch and finally blocks.
      return await Promise.race([
        context.suspended,
        Promise.resolve(workflow(context, body)).then(completed),
      ]);
    } catch (error) {
      context.leave();
      await context.quiet;
      throw error;
    } finally {
      context.end();
    }
  };
}

function completed(answer: unknown): Return {
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
