import { AsyncLocalStorage } from "node:async_hooks";
import type { Client, Pool, PoolClient } from "pg";
import type { Calls } from "./calls.js";
import type { Task } from "./task.js";
import type { Logger, NewTask } from "./types.js";

/** Is called around each performance, which `perform` does. What it returns is the result. */
export type Around = (task: Task, perform: () => Promise<unknown>) => unknown;

/** The task in whose handler the code is. */
export const performing = new AsyncLocalStorage<Task>();

/** What a performance needs of the app. */
export interface Environment {
  calls: Calls;
  log: Logger;
  pool(): Pool;
  /** Writes what the database lacks of the app's settings and schedules. */
  begin(run: (text: string, values: (string | null)[]) => Promise<any[]>): Promise<void>;
  /** Where the queue is, for people. */
  where: string;
  /** The first is the outermost. */
  arounds: readonly Around[];
  /** Refuses tasks whose bodies do not fit the handlers of this app. */
  check(tasks: NewTask[]): Promise<void>;
  /** The ids of the tasks of this database whose handlers run in this process, for whatever app. */
  running: Set<string>;
}

const RUNNING = new Map<string, Set<string>>();

/** The tasks of a database that this process performs. */
export function runningIn({ host, port, database }: Client): Set<string> {
  const key = JSON.stringify([host, port, database]);
  const running = RUNNING.get(key) ?? new Set();
  RUNNING.set(key, running);
  return running;
}

/** Runs work of a task in a transaction on a connection of the pool. */
export async function inTransaction<T>(pool: Pool, task: Task, work: (client: PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  // An error that is listened to by none ends the process. The next statement fails anyway.
  const lose = (error: Error) => {
    broken = error;
  };
  client.on("error", lose);
  try {
    await client.query("BEGIN");
    // It may have waited for a connection for long.
    task.throwIfAborted();
    const result = await work(client);
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK").catch((reason) => {
      broken = reason;
    });
    throw error;
  } finally {
    client.off("error", lose);
    client.release(broken);
  }
}
