import type { Pool, PoolClient } from "pg";
import type { Link } from "./link.js";
import type { Task } from "./task.js";

/** What a performance needs of the app. */
export interface Environment {
  calls: Link;
  pool(): Pool;
}

/** Runs work of a task in a transaction on a connection of the pool. */
export async function inTransaction<T>(
  pool: Pool,
  task: Task,
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  // An error that is listened to by none ends the process. The next statement fails by itself.
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
