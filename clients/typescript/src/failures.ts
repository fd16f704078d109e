import { isUnstorable, sqlState } from "./errors.js";

/** As pg says it, which still has a timer of its own if the connection string asks for one. */
export const NO_ANSWER = "Query read timeout";

/** How often a call is made that meets an error inside the server each time. */
export const TRIES = 3;

/**
 * Whether the call may work later, through another connection or at another time: the server stops, starts, has no room,
 * or is a standby since a failover (25006); it has ended the call for a time-out (57014; 25P03 and 25P04, with the session) or
 * for the sake of another (40001, 40P01, 55P03); or prepared statements are lost on it (26000, 42P05, 0A000). An error without
 * a SQLSTATE is one of the connection.
 */
export function isPassing(error: unknown): boolean {
  const state = sqlState(error);
  return state === undefined
    ? isOfTheConnection(error)
    : /^(08|53|57|25006|25P03|25P04|26000|42P05|0A000|40001|40P01|55P03)/.test(state);
}

/** Whether the call itself has taken too long: it had to wait for a lock, or there was too much in it. */
export function isTimeOut(error: unknown): boolean {
  return /^(57014|55P03)$/.test(sqlState(error) ?? "") || (error as Error)?.message === NO_ANSWER;
}

/** Whether the call has met an error inside the server, which may be over the next time. */
export function isInternal(error: unknown): boolean {
  return sqlState(error) === "XX000" && !isUnstorable(error);
}

/** Whether the connection is of no use any more. */
export function isBroken(error: unknown): boolean {
  const state = sqlState(error);
  return state === undefined || /^(08|57P|25006|25P03|25P04|26000|42P05|0A000)/.test(state);
}

function isOfTheConnection(error: unknown): boolean {
  const { code, message } = error as { code?: unknown; message?: string };
  // That is how it is set up. The message has no code.
  if (/does not support SSL/.test(message ?? "")) return false;
  return /^E(?!RR_)/.test(String(code)) || /connection|terminated|timeout|not queryable/i.test(message ?? "");
}

/** Whether what was asked for cannot be sent: it is too large for the server's memory, or meets an error inside of it. */
export function cannotBeSent(error: unknown): boolean {
  return /^(54|XX)/.test(sqlState(error) ?? "");
}
