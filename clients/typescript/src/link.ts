import type { Client } from "pg";
import { answered, end, keepAlive } from "./connection.js";
import { describe, mended, sqlState } from "./errors.js";
import { isBroken, isInternal, isPassing, isTimeOut, TRIES } from "./failures.js";
import { Terms } from "./terms.js";
import type { Logger } from "./types.js";

const FIRST_DELAY = 100;
const LONGEST_DELAY = 10_000;

/** What a link is made of. */
export interface LinkOptions {
  make(): Client;
  log: Logger;
  /** Statements that have a name are prepared once per connection. */
  prepare?: boolean;
  /** How long a statement waits for its answer, in milliseconds, if it does not say so itself. 0 is for ever. */
  timeout?: number;
  /** Until when statements are sent. */
  terms?: Terms;
  /** What is done first on each connection. */
  met?(client: Client): Promise<unknown>;
}

/** How one statement is sent. */
export interface Sending {
  /** The name to prepare it under. */
  name?: string;
  /** After how many milliseconds without an answer it fails, and the connection is taken for a dead one. */
  timeout?: number;
  /** A call that was ended for its time, or met an error inside the server, is not repeated: the caller divides it. */
  divisible?: boolean;
}

/** The values of a statement, which may depend on where the connection has led. */
export type Values = unknown[] | (() => unknown[]);

/**
 * One connection, opened when first used, and again as often as it takes; one statement at a time. While it is idle it keeps no
 * process alive.
 */
export class Link {
  readonly #options: LinkOptions;
  readonly #terms: Terms;
  #prepare: boolean;
  #last: Promise<unknown> = Promise.resolve();
  #client: Client | undefined;

  constructor(options: LinkOptions) {
    this.#options = options;
    this.#terms = options.terms ?? new Terms();
    this.#prepare = options.prepare ?? false;
  }

  /** The rows of a statement, sent once, after those before it. */
  query(text: string, values: Values, sending: Sending = {}): Promise<any[]> {
    const sent = this.#last.then(() => this.#send(text, values, sending));
    this.#last = sent.catch(() => {});
    return sent;
  }

  async #send(text: string, values: Values, { name, timeout }: Sending): Promise<any[]> {
    this.#terms.demand();
    const client = this.#client ?? (await this.#connect());
    // Connecting may have taken until then.
    this.#terms.demand();
    keepAlive(client, true);
    this.#terms.running.add(client);
    try {
      const query = {
        text,
        values: typeof values === "function" ? values() : values,
        name: this.#prepare ? name : undefined,
      };
      return (await answered(client, client.query(query), timeout ?? this.#options.timeout ?? 0)).rows;
    } catch (error) {
      if (isBroken(error)) this.#drop(client);
      // A pooler that shares server connections and knows nothing of prepared statements: go on without.
      if (isOfPooler(error)) this.#prepare = false;
      throw mended(error);
    } finally {
      this.#terms.running.delete(client);
      keepAlive(client, false);
    }
  }

  /** The rows of a statement, sent until it is answered: see {@link repeat}. */
  call(text: string, values: Values, sending: Sending = {}): Promise<any[]> {
    const { divisible } = sending;
    return repeat(() => this.query(text, values, sending), this.#terms, this.#options.log, divisible);
  }

  /** Whether there is a connection. */
  get isOpen(): boolean {
    return this.#client !== undefined;
  }

  /** Closes the connection. What is under way fails, and is repeated unless its terms are over. */
  async close(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    if (client) await end(client);
  }

  async #connect(): Promise<Client> {
    const client = this.#options.make();
    client.on("error", () => this.#forget(client));
    client.on("end", () => this.#forget(client));
    this.#terms.connecting.add(client);
    try {
      await client.connect();
      const { met, timeout = 0 } = this.#options;
      if (met) await answered(client, met(client), timeout);
    } catch (error) {
      this.#drop(client);
      throw error;
    } finally {
      this.#terms.connecting.delete(client);
    }
    this.#client = client;
    return client;
  }

  #drop(client: Client): void {
    this.#forget(client);
    void end(client);
  }

  #forget(client: Client): void {
    if (this.#client === client) this.#client = undefined;
  }
}

/**
 * Makes a call until it is answered. Its statement may run twice, if an answer gets lost, so it must be one that may: a token
 * is good once, and a step is kept as it was saved first.
 */
export async function repeat<T>(call: () => Promise<T>, terms: Terms, log: Logger, divisible = false): Promise<T> {
  let tries = 0;
  for (let delay = FIRST_DELAY; ; delay = Math.min(2 * delay, LONGEST_DELAY)) {
    try {
      return await call();
    } catch (error) {
      const mayPass = isPassing(error) || (isInternal(error) && ++tries < TRIES);
      if (!mayPass || terms.left <= FIRST_DELAY) throw error;
      if (divisible && (isTimeOut(error) || isInternal(error))) throw error;
      log.warn(`${reason(error)}, again in about ${delay} ms: ${describe(error)}`);
    }
    // Random, or all workers would come back to a restarted server at once.
    await terms.pause(delay * (0.5 + Math.random()));
  }
}

/** Whether a prepared statement is there that was not made on this connection, or is not there that was. */
function isOfPooler(error: unknown): boolean {
  return /^(26000|42P05)$/.test(sqlState(error) ?? "");
}

/** Why a call is made again, as the log says it. */
function reason(error: unknown): string {
  if (isOfPooler(error))
    return "prepared statements are off from now on (PgBouncer?), `preparedStatements: false` spares this";
  return sqlState(error) === undefined ? "no answer" : "refused";
}
