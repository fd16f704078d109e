import type { Client, ClientBase, PoolClient } from "pg";

/** A length of time: an interval of PostgreSQL, `"5 minutes"`. */
export type Duration = string;

/** A point in time: a `Date`, or a timestamp of PostgreSQL as text. */
export type Instant = Date | string;

/** On which end of a task another one depends. */
export type Condition = "completed" | "settled" | "aborted";

/** A dependency: an id (condition `completed`), or an id with its condition. */
export type Dependency = string | { readonly id: string; condition?: Condition };

/** How long a task waits for its next try. */
export interface Backoff {
  kind: "fixed" | "exponential";
  initial: Duration;
  max?: Duration;
  jitter?: number;
}

/** What is unique about a task, and for how long. */
export type UniqueBy =
  | true
  | string
  | {
      key?: string;
      period?: Duration;
      states?: string[];
      onConflict?: "skip" | "replace" | "error";
      maxWait?: Duration;
    };

/** The keys of a task besides action and body, as in "A task as JSON" of taskq's reference. */
export interface TaskOptions {
  /** The task's name, unique in the queue. Absent: a UUID of version 7. */
  id?: string;
  /** Higher goes first. */
  priority?: number;
  maxTries?: number;
  /** The lease where the claim does not say. The workers of this package always do. */
  lease?: Duration;
  /** The longest that one try may take, however often its lease is extended. */
  maxRunTime?: Duration;
  notBefore?: Instant;
  delay?: Duration;
  expiresAt?: Instant;
  expiresIn?: Duration;
  /** The tasks that this one runs after. */
  dependsOn?: Dependency[];
  /** The tasks that run after this one. */
  toSignalAfter?: Dependency[];
  /** How many of its dependencies it needs; absent: all. */
  numRequired?: number;
  /** No worker: the queue completes it once its dependencies are met. */
  spontaneous?: boolean;
  /** No worker: it is completed from outside, see `App.signal`. */
  signal?: boolean;
  postResult?: boolean;
  groupId?: string;
  workgroup?: string;
  mergeKey?: string;
  uniqueBy?: UniqueBy;
  seed?: boolean;
  backoff?: Backoff;
  retention?: Duration | { completed?: Duration; aborted?: Duration };
  /** Never interpreted. The trace context is put in here on insertion. */
  metadata?: Record<string, unknown>;
}

/** An action that is named by what its registration has returned. */
export interface Named {
  readonly action: string;
}

/** A whole task, for `App.insertTasks` and for children. */
export interface NewTask extends TaskOptions {
  action: string | Named;
  body?: unknown;
}

/** A task that is named by its id, or by the handle that its insertion gave. */
export type Id = string | { readonly id: string };

/** Tasks that are chosen by what they are, rather than by their ids. */
export interface Selection {
  actions?: string[];
  groups?: string[];
}

/** What can be paused. */
export type Target = { action: string } | { group: string } | { schedule: string };

/** Settings of an action, over all workers together: the arguments of `taskq.set_action`. */
export interface ActionSettings {
  maxTries?: number;
  backoff?: Backoff;
  maxConcurrency?: number;
  rateLimit?: number;
  ratePeriod?: Duration;
  retention?: Duration;
  retentionAborted?: Duration;
  notify?: boolean;
  onTimeout?: "retry" | "abort";
  maxTimeouts?: number;
  fair?: boolean;
  maxPerGroup?: number;
  expiresIn?: Duration;
  maxRunTime?: Duration;
  /** Settings that are to be as though never set, by their names in SQL. */
  clear?: string[];
}

/** Settings of a group: the arguments of `taskq.set_group`. */
export interface GroupSettings {
  maxConcurrency?: number;
  weight?: number;
  clear?: string[];
}

/** A task as the view `taskq.tasks` shows it, with names in camel case. Times are as the connection reads them. */
export interface TaskState {
  id: string;
  action: string;
  state: "blocked" | "scheduled" | "ready" | "in-progress" | "completed" | "aborted";
  body: string | null;
  statusCode: "pending" | "in-progress" | "completed" | "aborted";
  status: string | null;
  cause: string | null;
  result: unknown;
  numTries: number;
  [column: string]: unknown;
}

/** What can run a statement in a transaction of the caller's. */
export type Queryable =
  | Client
  | ClientBase
  | PoolClient
  /** pg's shape; TypeORM's `EntityManager` and `QueryRunner` have it as well. */
  | { query(text: string, values?: any[]): Promise<any> }
  /** Drizzle. */
  | { execute(query: string): PromiseLike<any> }
  /** Knex. */
  | { raw(text: string, bindings: any): PromiseLike<any> }
  /** Kysely. */
  | { executeQuery(query: any): Promise<{ rows: any[] }> }
  /** Prisma. */
  | { $queryRawUnsafe(text: string, ...values: any[]): PromiseLike<any> }
  /** postgres.js. */
  | { unsafe(text: string, values?: any[]): PromiseLike<any> };

/** How tasks are inserted. */
export interface InsertCall {
  /** The transaction to insert in. Absent: the app's own connection, committed at once. */
  client?: Queryable;
  /** What to do about an id that exists: refuse the call (`TQ002`, the default), or leave that task alone. */
  onConflict?: "error" | "skip";
  /** What to do about a dependency on an unknown task: refuse the call (`TQ003`), or leave it out. */
  ifMissing?: "error" | "ignore";
}

/** What a settled dependency has left. */
export interface DependencyResult {
  taskId: string;
  action: string;
  statusCode: "completed" | "aborted";
  status: string | null;
  result: unknown;
}

/** Where the package says what happens. `console` is one; so are most loggers. */
export interface Logger {
  /** Each try. Absent: not said. */
  debug?(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  /** What is tried again. */
  warn(message: string, fields?: LogFields): void;
  /** What has aborted, or is lost. */
  error(message: string, fields?: LogFields): void;
}

/** The facts of a line, for structured logs. */
export interface LogFields {
  action?: string;
  taskId?: string;
  numTries?: number;
  error?: unknown;
}

/**
 * What a body must look like: a function that returns the body or throws, or a schema of any library that follows
 * [Standard Schema](https://standardschema.dev) (Zod, Valibot, ArkType and others).
 */
export type Schema<Body> = ((body: unknown) => Body) | StandardSchema<Body>;

/** The part of Standard Schema that is used here. */
export interface StandardSchema<Body> {
  readonly "~standard": {
    validate(value: unknown): SchemaResult<Body> | Promise<SchemaResult<Body>>;
  };
}

/** What a schema says of a value. */
export type SchemaResult<Body> =
  | { readonly value: Body; readonly issues?: undefined }
  | {
      readonly issues: ReadonlyArray<{
        readonly message: string;
        readonly path?: ReadonlyArray<unknown> | undefined;
      }>;
    };

/** How a task has ended. */
export interface Settled<Result = unknown> {
  taskId: string;
  statusCode: "completed" | "aborted";
  status: string | null;
  result: Result;
  settledAt: Date;
}

/** How a schedule is made: the arguments of `taskq.schedule`, and the keys of its tasks. */
export interface ScheduleOptions extends Omit<TaskOptions, "id"> {
  timezone?: string;
  overlap?: "skip" | "queue" | "replace";
  backfill?: "one" | "none" | "all";
  /** How many missed runs `backfill: "all"` makes up for at most. */
  maxBackfill?: number;
}
