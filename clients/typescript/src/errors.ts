import { inspect } from "node:util";
import pg from "pg";
import { interval } from "./durations.js";
import type { Duration } from "./types.js";

/** Thrown by a handler: no further try makes sense. The task is aborted with this text as its status. */
export class Reject extends Error {
  override readonly name = "Reject";
}

/** What {@link Retry} may say besides its text. */
export interface RetryOptions {
  /** When the next try may begin. Absent: the back-off of the task, of its action, or of the queue decides. */
  after?: Duration;
  /** `false`: this try does not count, as when a service said "later". */
  countTry?: boolean;
  /** Holds back every task of this task's workgroup for so long. */
  delayWorkgroup?: Duration;
}

/** Thrown by a handler: the task is given back for another try, at a time that the handler knows. */
export class Retry extends Error {
  override readonly name = "Retry";
  readonly options: RetryOptions;

  constructor(message: string, options: RetryOptions = {}) {
    super(message);
    // What the queue would refuse fails here, where it is written.
    for (const duration of [options.after, options.delayWorkgroup]) duration === undefined || interval(duration);
    this.options = options;
  }
}

/** Thrown by the waits of a workflow whose `timeout` is over. */
export class TimedOut extends Error {
  override readonly name = "TimedOut";
}

/** Thrown by the waits of a workflow when what they waited for has aborted. */
export class Aborted extends Error {
  override readonly name = "Aborted";
  /** The task that has aborted. */
  readonly taskId: string;

  constructor(taskId: string, status: string | null) {
    super(status === null ? `task "${taskId}" has aborted` : `task "${taskId}" has aborted: ${status}`);
    this.taskId = taskId;
  }
}

/**
 * The reason of `task.signal` when the task was cancelled, taken over or deleted, and thrown by what reports, completes or saves a
 * step then. Its result is dropped.
 */
export class Lost extends Error {
  override readonly name = "Lost";
}

/** The reason of `task.signal` when the worker stops and the grace is over, or has failed. */
export class WorkerStopped extends Error {
  override readonly name = "WorkerStopped";
}

/** Thrown by a handler: the worker forgets the task. It is returned by what has its id and its token. */
export class Leave extends Error {
  override readonly name = "Leave";
}

/** An error of the driver's that is known by its SQLSTATE, whatever driver it is of: `error instanceof AlreadyExists`. */
class Coded extends pg.DatabaseError {
  static readonly code: string = "";

  static override [Symbol.hasInstance](error: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: of the class that is asked.
    return error instanceof Error && sqlState(error) === this.code;
  }
}

/** A task with this id exists. */
export class AlreadyExists extends Coded {
  static override readonly code = "TQ002";
}

/** There is no such task. */
export class NotFound extends Coded {
  static override readonly code = "TQ003";
}

/** Dependencies in a circle; `detail` shows it. */
export class Cycle extends Coded {
  static override readonly code = "TQ004";
}

/** The task's state forbids this. */
export class WrongState extends Coded {
  static override readonly code = "TQ005";
}

/** A task with a key that is none, or a value that does not fit. */
export class Malformed extends Coded {
  static override readonly code = "TQ006";
}

/** What mends a database that is not ready for the queue, by the SQLSTATE of its error. */
const REMEDIES: Record<string, string> = {
  "3F000": "CREATE EXTENSION taskq, in this database",
  "42501": "SELECT taskq.grant_worker(ROLE); or grant_inserter, grant_producer, grant_operator",
};

/** The same error, which says what mends it if the database is not ready for the queue. */
export function mended(error: unknown): unknown {
  const remedy = REMEDIES[sqlState(error) ?? ""];
  if (!remedy || !(error instanceof Error) || error.message.includes(remedy)) return error;
  if (/"taskq"|permission denied/.test(error.message)) error.message += ` (what mends it: ${remedy})`;
  return error;
}

/** The SQLSTATE of an error of the server; undefined for any other error, such as one of the connection. */
export function sqlState(error: unknown): string | undefined {
  const code = guarded(() => (error as { code?: unknown } | null | undefined)?.code, undefined);
  // EPIPE and its like are Node's, not the server's.
  return typeof code === "string" && /^(?!E[A-Z]{4})[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

/** Whether a value cannot be stored: no jsonb holds it. It will be the same after the next try. */
export function isUnstorable(error: unknown): boolean {
  const state = sqlState(error) ?? "";
  // A value that is too large for the server's memory has no class of its own.
  return /^(22|54)/.test(state) || (state === "XX000" && messageOf(error).includes(TOO_LARGE));
}

const TOO_LARGE = "invalid memory alloc request size";

/** What a text of PostgreSQL can hold, at a length that a person reads. */
export function printable(text: string): string {
  // A cut may halve a pair of surrogates.
  return text.replaceAll("\0", "").slice(0, 10_000).toWellFormed();
}

/** So many causes of causes are told. */
const DEEPEST = 4;
const NO_TEXT = "an error that has no text";

/**
 * An error's type and text, with those of its causes and of what a group of errors has. A handler may throw anything, also what
 * has no text, or throws when it is asked for it.
 */
export function describe(error: unknown): string {
  return guarded(() => printable(withCauses(error, 0)), NO_TEXT);
}

function withCauses(error: unknown, depth: number): string {
  if (!(error instanceof Error)) return inspect(error);
  const text = `${error.name}: ${error.message}`;
  if (depth === DEEPEST) return text;
  const parts = error instanceof AggregateError ? error.errors.slice(0, DEEPEST) : [];
  const causes = [...parts, ...(error.cause === undefined ? [] : [error.cause])];
  return [text, ...causes.map((cause) => `caused by ${withCauses(cause, depth + 1)}`)].join("; ");
}

/** The same for the log: with the stack of each. */
export function withStack(error: unknown): string {
  return guarded(() => inspect(error, { depth: DEEPEST }), NO_TEXT);
}

/** An error's text alone. */
export function messageOf(error: unknown): string {
  return guarded(() => printable(String((error as Error | null | undefined)?.message ?? error)), NO_TEXT);
}

/** What a foreign value says, or something else where it throws. */
export function guarded<T>(ask: () => T, otherwise: T): T {
  try {
    return ask();
  } catch {
    return otherwise;
  }
}
