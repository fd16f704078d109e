import type { Client } from "pg";
import { answered, cancel, end, keepAlive } from "./connection.js";
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

/** What has interrupted a call while nothing was sent, with the code of the server for the other case. */
class Interrupted extends Error {
  readonly code = "57014";
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
  #running: Client | undefined;
  #lingering: NodeJS.Timeout | undefined;
  #interrupted = false;
  #calls = 0;
  /** Whether an interrupt came between two attempts of a call. */
  #missed = false;

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
    this.#running = client;
    terms.running.add(client);
    try {
      const query = { text, values, name: this.#prepare ? name : undefined };
      return (await answered(client, client.query(query), timeout)).rows;
    } catch (error) {
      if (isBroken(error)) this.#drop(client);
      // A pooler that shares server connections and knows nothing of prepared statements: go on without.
      if (/^(26000|42P05)$/.test(sqlState(error) ?? "")) this.#prepare = false;
      throw error;
    } finally {
      this.#running = undefined;
      terms.running.delete(client);
      keepAlive(client, false);
    }
  }

  #demandTime(terms: Terms): void {
    if (terms.left <= 0) throw new Error("no connection is used any more");
    if (this.#missed) throw new Interrupted("interrupted before it was sent");
  }

  /**
   * The rows of a statement, sent until it is answered. It may run twice, if an answer gets lost, so it must be one that
   * may: a token is good once, and a step is kept as it was saved first.
   */
  async call(text: string, values: unknown[], sending: Sending = {}): Promise<any[]> {
    this.#calls++;
    try {
      return await this.#repeat(text, values, sending, sending.terms ?? this.#terms);
    } finally {
      if (--this.#calls === 0) this.#missed = false;
    }
  }

  async #repeat(text: string, values: unknown[], sending: Sending, terms: Terms): Promise<any[]> {
    let tries = 0;
    for (let delay = FIRST_DELAY; ; delay = Math.min(2 * delay, LONGEST_DELAY)) {
      try {
        return await this.query(text, values, { ...sending, terms });
      } catch (error) {
        const interrupted =
          error instanceof Interrupted || (this.#interrupted && sqlState(error) === "57014");
        if (interrupted) this.#interrupted = false;
        const mayPass = isPassing(error) || (isInternal(error) && ++tries < TRIES);
        if (interrupted || !mayPass || terms.left <= FIRST_DELAY) throw error;
        if (sending.divisible && (isTimeOut(error) || isInternal(error))) throw error;
        this.#log.warn(`no answer, again in about ${delay} ms: ${describe(error)}`);
      }
      // Random, or all workers would come back to a restarted server at once.
      await terms.pause(delay * (0.5 + Math.random()));
    }
  }

  /**
   * Ends the call under way, which fails with 57014 then. What it has committed before that stays. If it is not sent now, for
   * lack of a connection, it is not sent again.
   */
  interrupt(): void {
    if (!this.#running) {
      this.#missed = this.#calls > 0;
      return;
    }
    this.#interrupted = true;
    // If the request gets lost, the statement ends when its time is up.
    cancel(this.#running);
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
    return client;
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
