import pg from "pg";
import { end } from "./connection.js";

/**
 * A connection may be lost between its opening and the moment when what has asked for it gets it. Without a listener, that
 * would end the process; the first statement fails anyway.
 */
export function surviveLosses(pool: pg.Pool): void {
  pool.on("connect", (client) => void client.on("error", () => {}));
}

/** The pool that an app makes for itself. */
export class OwnPool extends pg.Pool {
  /** In the hands of handlers. */
  readonly #lent = new Set<pg.PoolClient>();

  constructor(options: pg.PoolConfig) {
    super(options);
    surviveLosses(this);
    this.on("acquire", (client) => void this.#lent.add(client));
    this.on("release", (_, client) => void this.#lent.delete(client));
  }

  /**
   * Closes all connections. A handler that did not end when its worker stopped may never give its connection back, and the task
   * is another worker's by now; its transaction is rolled back.
   */
  async close(): Promise<void> {
    const lent = [...this.#lent];
    const ended = this.end();
    await Promise.all(lent.length === 0 ? [ended] : lent.map((client) => end(client as unknown as pg.Client)));
  }
}
