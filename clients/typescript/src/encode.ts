import { checked, interval } from "./durations.js";
import { messageOf, Reject } from "./errors.js";
import { traceContext } from "./telemetry.js";
import type { Duration, NewTask, UniqueBy } from "./types.js";

/** A task, or a part of one, as the JSON that the queue takes. */
export type Json = Record<string, unknown>;

/** A time in SQL as a number, which no setting (DateStyle, extra_float_digits) and no parser of a driver writes in its own way. */
export function inMilliseconds(time: string): string {
  return `floor(1000 * extract(epoch FROM ${time}))::bigint`;
}

/**
 * A body as the queue stores it: a text as it is, anything else as its JSON text. A text that would be read as JSON is
 * quoted, so that {@link decodeBody} gives back just what was inserted.
 */
export function encodeBody(body: unknown): unknown {
  refuse(body);
  const value = asJson(body);
  return typeof value === "string" && isJson(value) ? JSON.stringify(value) : value;
}

/** What `JSON.stringify` takes a value for: it may be one that becomes a text. */
function asJson(value: any): unknown {
  if (value instanceof String) return String(value);
  return typeof value?.toJSON === "function" ? value.toJSON("body") : value;
}

/** The body as it was inserted: the value of a JSON text, or else the text; `null` if there is none. */
export function decodeBody(body: string | null): unknown {
  if (body === null) return null;
  try {
    return JSON.parse(body);
  } catch {
    return body;
  }
}

/**
 * A task with the keys of the contract, and with the trace context. A key that is not known here is passed on; the queue
 * refuses it and names it.
 */
export function encodeTask({ body, action, ...options }: NewTask): Json {
  const task: Json = { action: typeof action === "object" && action ? action.action : action };
  if (body !== undefined) task.body = encodeBody(body);
  for (const [key, value] of Object.entries(options)) {
    if (value !== undefined) task[snake(key)] = encodeKey(key, value);
  }
  const trace = traceContext();
  if (trace) task.metadata = { ...trace, ...options.metadata };
  return task;
}

export function encodeKey(key: string, value: any): unknown {
  switch (key) {
    case "lease":
    case "maxRunTime":
    case "delay":
    case "expiresIn":
      return interval(value);
    case "uniqueBy":
      return encodeUnique(value);
    case "backoff":
      return intervals(checked(key, value) as Json, "initial", "max");
    case "retention":
      return typeof value === "object" ? intervals(value, "completed", "aborted") : interval(value);
    case "metadata":
      return value;
    default:
      return checked(key, value);
  }
}

function encodeUnique(unique: UniqueBy): unknown {
  if (typeof unique !== "object" || unique === null) return unique;
  checked("uniqueBy", unique);
  const { onConflict, maxWait, ...rest } = unique;
  return intervals({ ...rest, on_conflict: onConflict, max_wait: maxWait }, "period", "max_wait");
}

/** The object with these of its values as intervals. */
function intervals(object: Json, ...keys: string[]): Json {
  const copy = { ...object };
  for (const key of keys) {
    if (copy[key] !== undefined) copy[key] = interval(copy[key] as Duration);
  }
  return copy;
}

function snake(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** The settings of an action or a group as named arguments: each with the type that makes it known. */
export function settingsOf(settings: object): { key: string; type: string; value: string }[] {
  return Object.entries(settings).flatMap(([name, value]) => {
    if (value === undefined) return [];
    const key = snake(name);
    const type = SETTINGS[key];
    if (!type) throw new TypeError(`no setting: ${name}; there are ${Object.keys(SETTINGS).join(", ")}`);
    if (type === "interval") return [{ key, type, value: interval(value) }];
    if (type === "text[]") return [{ key, type, value: arrayOf(value) }];
    if (key === "backoff") return [{ key, type, value: JSON.stringify(encodeKey(key, value)) }];
    return [{ key, type, value: String(checked(name, value)) }];
  });
}

/** The statement that writes settings of an action or a group, and its values. */
export function settingCall(
  call: string,
  name: string,
  settings: ReturnType<typeof settingsOf>,
): [string, (string | null)[]] {
  const list = settings.map(({ key, type }, n) => `, ${key} => $${n + 2}::text::${type}`).join("");
  return [`SELECT taskq.${call}($1::text${list})`, [name, ...settings.map(({ value }) => value)]];
}

/** The arguments of `taskq.set_action` and `taskq.set_group`. */
export const SETTINGS: Record<string, string> = {
  max_tries: "integer",
  lease: "interval",
  backoff: "jsonb",
  max_concurrency: "integer",
  rate_limit: "integer",
  rate_period: "interval",
  retention: "interval",
  retention_aborted: "interval",
  notify: "boolean",
  on_timeout: "text",
  max_timeouts: "integer",
  fair: "boolean",
  max_per_group: "integer",
  expires_in: "interval",
  max_run_time: "interval",
  weight: "integer",
  clear: "text[]",
};

/** An array of texts, as PostgreSQL writes it: no driver has to know its type. */
export function arrayOf(texts: string[]): string {
  return `{${texts.map((text) => `"${text.replace(/[\\"]/g, "\\$&")}"`).join(",")}}`;
}

/** The server takes no message of a GB, and no jsonb of a quarter of that. */
const LARGEST = 500_000_000;

/** The JSON text of a value; `TypeError` where JSON would make `{}` or `null` of a part of it. */
export function jsonOf(value: unknown, what: string): string | undefined {
  try {
    refuse(value);
    return JSON.stringify(value, refusing);
  } catch (error) {
    throw new TypeError(`the ${what} is no JSON: ${messageOf(error)}`);
  }
}

/** The JSON text of what a handler has made. What has none now would have none the next time. */
export function toJson(made: unknown, what = "result"): string | undefined {
  let text: string | undefined;
  try {
    text = jsonOf(made, what);
  } catch (error) {
    throw new Reject(messageOf(error));
  }
  // A character takes three bytes at most.
  if (text !== undefined && 3 * text.length > LARGEST && Buffer.byteLength(text) > LARGEST)
    throw new Reject(`the ${what} is too large: ${Buffer.byteLength(text)} bytes of JSON`);
  return text;
}

/** Lets values through, and refuses what JSON would make `{}` or `null` of, wherever it is. */
function refusing(this: any, key: string, value: unknown): unknown {
  // A `Date` has become a text by then, and an invalid one `null`.
  refuse(this[key]);
  return value;
}

/** Throws where JSON has nothing for a value. What has a `toJSON` of its own says what it is. */
function refuse(value: any): void {
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value}`);
  if (typeof value === "function") throw new TypeError("a function");
  if (typeof value !== "object" || value === null) return;
  if (value instanceof Date && Number.isNaN(value.getTime())) throw new TypeError("an invalid Date");
  if (typeof value.toJSON === "function") return;
  if (value instanceof Error || value instanceof Map || value instanceof Set)
    throw new TypeError(`a ${value.constructor.name}`);
}

/** A length of time in milliseconds as timers take it: a longer one would end at once. */
export function forTimer(milliseconds: number): number {
  return Math.min(Math.max(milliseconds, 0), 2 ** 31 - 1);
}
