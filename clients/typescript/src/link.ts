import pg, { type Client } from "pg";
import { answered, end, keepAlive } from "./connection.js";
import { describe, sqlState } from "./errors.js";
import { isBroken, isInternal, isPassing, isTimeOut, TRIES } from "./failures.js";
import { Terms } from "./terms.js";
import type { Logger } from "./types.js";

const FIRST_DELAY = 100;
const LONGEST_DELAY = 10_000;
/** How long a statement waits for its turn, while the one before it runs, before it goes another way. */
export const PATIENCE = 1000;
/** How long a brief connection is kept when nothing is waiting for it: what stands in the way elsewhere may still do so. */
const LINGERING = 1000;

/** What a link is besides a connection. */
export interface LinkOptions {
  /** Statements that have a name are prepared once per connection. */
  prepare?: boolean;
  /**
   * A statement that waits for its turn for too long gets a second connection, for as long as it takes. One that is before it
   * may wait for a transaction of the caller's, and the caller for this one: no server would see that deadlock. The turn of
   * one that waits there may not come either: it gets another.
   */
  spare?: boolean;
  /** The connection is closed soon after nothing is waiting for it. */
  brief?: boolean;
  /** How long a statement waits for its answer, in milliseconds, if it does not say so itself. 0 is for ever. */
  timeout?: number;
}

/** How one statement is sent. */
export interface Sending {
  /** The name to prepare it under. */
  name?: string;
  /** After how many milliseconds without an answer it fails, and the connection is taken for a dead one. */
  timeout?: number;
  /** A call that was ended for its time, or met an error inside the server, is not repeated: the caller divides it. */
  divisible?: boolean;
  /** Until when it is sent. Without, until the link is closed. */
  terms?: Terms;
  /** By which other link it goes when its turn does not come, rather than by the spare one. */
  otherwise?: Link;
  /** After how many milliseconds it does, counted from when the statement began that is running. */
  patience?: number;
}

/** One connection, opened when first used, and again as often as it takes. While it is idle it keeps no process alive. */
export class Link {
  readonly #make: () => Client;
  #prepare: boolean;
  readonly #hasSpare: boolean;
  #spare: Link | undefined;
  readonly #log: Logger;
  readonly #brief: boolean;
  readonly #timeout: number;
  /** Those of what is sent without any. */
  #terms = new Terms();
  /** The running one included, and what has gone another way before its turn. */
  #waiting = 0;
  #last: Promise<void> = Promise.resolve();
  /** When the running statement began. */
  #began = 0;
  #client: Client | undefined;
  #lingering: NodeJS.Timeout | undefined;
  #listening: { channel: string; argument: string; told: () => void } | undefined;

  constructor(
    make: () => Client,
    log: Logger,
    { prepare = false, spare = false, brief = false, timeout = 0 }: LinkOptions,
  ) {
    this.#make = make;
    this.#prepare = prepare;
    this.#hasSpare = spare;
    this.#brief = brief;
    this.#timeout = timeout;
    this.#log = log;
  }

  /** The rows of a statement, sent once, after those before it. */
  query(text: string, values: unknown[], sending: Sending = {}): Promise<any[]> {
    const { otherwise = this.#spareLink(), patience = PATIENCE, terms = this.#terms } = sending;
    const elsewhere = (link: Link) => link.query(text, values, { ...sending, terms, otherwise: undefined });
    const wait = this.#waiting > 0 ? this.#began + patience - performance.now() : patience;
    if (otherwise && wait <= 0) return elsewhere(otherwise);
    return new Promise((resolve, reject) => {
      let gone = false;
      let timer: NodeJS.Timeout | undefined;
      if (otherwise && this.#waiting > 0) {
        timer = setTimeout(() => {
          gone = true;
          resolve(elsewhere(otherwise));
        }, wait);
      }
      clearTimeout(this.#lingering);
      if (this.#waiting++ === 0) this.#began = performance.now();
      this.#last = this.#last.then(async () => {
        clearTimeout(timer);
        if (!gone) await this.#send(text, values, sending, terms).then(resolve, reject);
        this.#began = performance.now();
        if (--this.#waiting === 0 && this.#brief) this.#linger();
      });
    });
  }

  #spareLink(): Link | undefined {
    if (this.#hasSpare)
      this.#spare ??= new Link(this.#make, this.#log, { brief: true, spare: true, timeout: this.#timeout });
    return this.#spare;
  }

  async #send(
    text: string,
    values: unknown[],
    { name, timeout = this.#timeout }: Sending,
    terms: Terms,
  ): Promise<any[]> {
    this.#demandTime(terms);
    const client = this.#client ?? (await this.#connect(terms));
    // Connecting may have taken until then.
    this.#demandTime(terms);
    keepAlive(client, true);
    terms.running.add(client);
    try {
      const query = { text, values, name: this.#prepare ? name : undefined };
      return (await answered(client, client.query(query), timeout)).rows;
    } catch (error) {
      if (isBroken(error)) this.#drop(client);
      // A pooler that shares server connections and knows nothing of prepared statements: go on without.
      if (isOfPooler(error)) this.#prepare = false;
      throw error;
    } finally {
      terms.running.delete(client);
      keepAlive(client, false);
    }
  }

  #demandTime(terms: Terms): void {
    if (terms.left <= 0) throw new Error("no connection is used any more");
  }

  /**
   * The rows of a statement, sent until it is answered. It may run twice, if an answer gets lost, so it must be one that
   * may: a token is good once, and a step is kept as it was saved first.
   */
  async call(text: string, values: unknown[], sending: Sending = {}): Promise<any[]> {
    const { terms = this.#terms } = sending;
    let tries = 0;
    for (let delay = FIRST_DELAY; ; delay = Math.min(2 * delay, LONGEST_DELAY)) {
      try {
        return await this.query(text, values, { ...sending, terms });
      } catch (error) {
        const mayPass = isPassing(error) || (isInternal(error) && ++tries < TRIES);
        if (!mayPass || terms.left <= FIRST_DELAY) throw error;
        if (sending.divisible && (isTimeOut(error) || isInternal(error))) throw error;
        this.#log.warn(`${reason(error)}, again in about ${delay} ms: ${describe(error)}`);
      }
      // Random, or all workers would come back to a restarted server at once.
      await terms.pause(delay * (0.5 + Math.random()));
    }
  }

  /** Closes the connection, and fails what is under way. The next call opens another one. */
  async close(): Promise<void> {
    clearTimeout(this.#lingering);
    this.#terms.giveUpAt(0);
    this.#terms = new Terms();
    const client = this.#client;
    this.#client = undefined;
    await Promise.all([client && end(client), this.#spare?.close()]);
  }

  async #connect(terms: Terms): Promise<Client> {
    const client = this.#make();
    client.on("error", () => this.#forget(client));
    client.on("end", () => this.#forget(client));
    terms.connecting.add(client);
    try {
      await client.connect();
    } catch (error) {
      this.#drop(client);
      throw error;
    } finally {
      terms.connecting.delete(client);
    }
    this.#client = client;
    await this.#listen(client);
    return client;
  }

  /** Hears what is told on the channel that this call names, on each connection of the link from now on. */
  listen(channel: string, argument: string, told: () => void): void {
    this.#listening = { channel, argument, told };
    if (this.#client) void this.#listen(this.#client);
  }

  /** Heeds the channel no more. */
  listenNoMore(): void {
    this.#listening = undefined;
  }

  async #listen(client: Client): Promise<void> {
    if (!this.#listening) return;
    const { channel, argument } = this.#listening;
    try {
      const { rows } = await client.query(`SELECT ${channel} AS name`, [argument]);
      await client.query(`LISTEN ${pg.escapeIdentifier(rows[0].name)}`);
      client.removeAllListeners("notification");
      client.on("notification", () => this.#listening?.told());
    } catch {
      // What cannot listen, as on a standby, learns the same from the next heartbeat.
    }
  }

  #linger(): void {
    this.#lingering = setTimeout(() => this.#client && this.#drop(this.#client), LINGERING).unref();
  }

  #drop(client: Client): void {
    this.#forget(client);
    void end(client);
  }

  #forget(client: Client): void {
    if (this.#client === client) this.#client = undefined;
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
