import { inspect } from "node:util";
import type { Duration } from "./types.js";

/** An interval as the queue takes it. */
export function interval(duration: Duration): string {
  if (typeof duration === "string") return duration;
  throw new TypeError(`a length of time is a text such as "${duration} milliseconds", not ${inspect(duration)}`);
}

/** A number that the queue takes: JSON has no NaN and no Infinity, and would make nothing of them. */
export function number(key: string, value: number): number {
  if (Number.isFinite(value)) return value;
  throw new RangeError(`${key}: ${value} is no number that the queue takes`);
}

/** A key's value, with each number and time in it checked. */
export function checked(key: string, value: unknown): unknown {
  if (typeof value === "number") number(key, value);
  if (value instanceof Date && Number.isNaN(value.getTime())) throw new RangeError(`${key}: an invalid Date`);
  if (value instanceof Date || typeof value !== "object" || value === null) return value;
  for (const [name, part] of Object.entries(value)) checked(`${key}.${name}`, part);
  return value;
}
