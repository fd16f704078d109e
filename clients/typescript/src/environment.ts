import type { Pool, PoolClient } from "pg";
import type { Link } from "./link.js";

/** What a performance needs of the app. */
export interface Environment {
  calls: Link;
  pool(): Pool;
}

/** Runs work in a transaction on a connection of the pool. */
export async function inTransaction<T>(pool: Pool, work: (client: PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  // An error that is listened to by none ends the process. The next statement fails by itself.
  const lose = (error: Error) => {
    broken = error;
  };
  client.on("error", lose);
  try {
    await client.query("BEGIN");
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
