import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "pg";
import { forTimer } from "./encode.js";
import { describe, sqlState } from "./errors.js";
import type { Logger } from "./types.js";

const FIRST_DELAY = 100;
const LONGEST_DELAY = 10_000;
const CANCEL_REQUEST = 80877102;
/** How long the server may take to close a connection. */
const CLOSING = 1000;
/** How long a statement waits for its turn before it takes the second connection. */
const PATIENCE = 1000;

/**
 * Whether the call may work later, through another connection or at another time: the server stops, starts, has no room,
 * or is a standby since a failover (25006); it has ended the call for its time-out (57014) or for the sake of another
 * (40001, 40P01, 55P03); or prepared statements are lost on it (26000, 42P05, 0A000). An error without a SQLSTATE is one of
 * the connection.
 */
export function isPassing(error: unknown): boolean {
  const state = sqlState(error);
  return state === undefined
    ? isOfTheConnection(error)
    : /^(08|53|57|25006|26000|42P05|0A000|40001|40P01|55P03)/.test(state);
}

/** As pg says it, which still has a timer of its own if the connection string asks for one. */
const NO_ANSWER = "Query read timeout";

/** Whether the call has taken too long by itself: it had to wait for a lock, or there was too much in it. */
export function isTimeOut(error: unknown): boolean {
  return /^(57014|55P03)$/.test(sqlState(error) ?? "") || (error as Error)?.message === NO_ANSWER;
}

function isOfTheConnection(error: unknown): boolean {
  const { code, message } = error as { code?: unknown; message?: string };
  // That is how it is set up. The message has no code.
  if (/does not support SSL/.test(message ?? "")) return false;
  return /^E(?!RR_)/.test(String(code)) || /connection|terminated|timeout|not queryable/i.test(message ?? "");
}

/** Whether the connection is of no use any more. */
function isBroken(error: unknown): boolean {
  const state = sqlState(error);
  return state === undefined || /^(08|57P|25006|26000|42P05|0A000)/.test(state);
}

/** `ref` and `unref` are documented by pg, and not declared; nor is the connection. */
type Refable = Client & {
  ref(): void;
  unref(): void;
  connection: { stream: { bytesRead: number; destroy(): void } };
};

/** What a link is besides a connection. */
export interface LinkOptions {
  /** Statements that have a name are prepared once per connection. */
  prepare?: boolean;
  /**
   * A statement that waits for its turn for too long gets a second connection, for as long as it takes. One that is before it
   * may wait for a transaction of the caller's, and the caller for this one: no server would see that deadlock.
   */
  spare?: boolean;
  /** The connection is closed when nothing is waiting for it. */
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
  /** A call that was ended for its time is not repeated: the caller divides it. */
  divisible?: boolean;
}

/** What has interrupted a call while nothing was sent, with the code of the server for the other case. */
class Interrupted extends Error {
  readonly code = "57014";
}

/** One connection, opened when first used, and again as often as it takes. While it is idle it keeps no process alive. */
export class Link {
  readonly #make: () => Client;
  #prepare: boolean;
  readonly #spare: Link | undefined;
  readonly #log: Logger;
  readonly #brief: boolean;
  readonly #timeout: number;
  #waiting = 0;
  #client: Client | undefined;
  #connecting: Client | undefined;
  #opening: Promise<Client> | undefined;
  #running: Client | undefined;
  #last: Promise<void> = Promise.resolve();
  #interrupted = false;
  #calls = 0;
  /** Whether an interrupt came between two attempts of a call. */
  #missed = false;
  #giveUpAt = Number.POSITIVE_INFINITY;
  #cutting: NodeJS.Timeout | undefined;
  #pause = new AbortController();

  constructor(
    make: () => Client,
    log: Logger,
    { prepare = false, spare = false, brief = false, timeout = 0 }: LinkOptions,
  ) {
    this.#make = make;
    this.#prepare = prepare;
    this.#spare = spare ? new Link(make, log, { brief: true, timeout }) : undefined;
    this.#brief = brief;
    this.#timeout = timeout;
    this.#log = log;
  }

  /** The rows of a statement, sent once, after those before it. */
  query(text: string, values: unknown[], sending: Sending = {}): Promise<any[]> {
    const spare = this.#spare;
    return new Promise((resolve, reject) => {
      let gone = false;
      let timer: NodeJS.Timeout | undefined;
      if (spare && this.#waiting > 0) {
        timer = setTimeout(() => {
          gone = true;
          resolve(spare.query(text, values));
        }, PATIENCE);
      }
      this.#waiting++;
      this.#last = this.#last.then(async () => {
        clearTimeout(timer);
        if (!gone) await this.#send(text, values, sending).then(resolve, reject);
        this.#waiting--;
        if (this.#brief && this.#waiting === 0) this.#dismiss();
      });
    });
  }

  async #send(text: string, values: unknown[], { name, timeout = this.#timeout }: Sending): Promise<any[]> {
    this.#demandTime();
    const client = (this.#client ?? (await this.#open())) as Refable;
    // Connecting may have taken until then.
    this.#demandTime();
    client.ref();
    this.#running = client;
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
      client.unref();
    }
  }

  #demandTime(): void {
    if (Date.now() >= this.#giveUpAt) throw new Error("no connection is used any more");
    if (this.#missed) throw new Interrupted("interrupted before it was sent");
  }

  /**
   * The rows of a statement, sent until it is answered. It may run twice, if an answer gets lost, so it must be one that
   * may: a token is good once, and a step is kept as it was saved first.
   */
  async call(text: string, values: unknown[], sending: Sending = {}): Promise<any[]> {
    this.#calls++;
    try {
      return await this.#repeat(text, values, sending);
    } finally {
      if (--this.#calls === 0) this.#missed = false;
    }
  }

  async #repeat(text: string, values: unknown[], sending: Sending): Promise<any[]> {
    for (let delay = FIRST_DELAY; ; delay = Math.min(2 * delay, LONGEST_DELAY)) {
      try {
        return await this.query(text, values, sending);
      } catch (error) {
        const interrupted =
          error instanceof Interrupted || (this.#interrupted && sqlState(error) === "57014");
        if (interrupted) this.#interrupted = false;
        if (interrupted || !isPassing(error) || this.#left <= FIRST_DELAY) throw error;
        if (sending.divisible && isTimeOut(error)) throw error;
        this.#log.warn(`no answer, again in about ${delay} ms: ${describe(error)}`);
      }
      // Random, or all workers would come back to a restarted server at once.
      // What is left at the end is for attempts as well, each with time for an answer.
      const pause = Math.min(delay * (0.5 + Math.random()), this.#left / 2);
      await sleep(pause, undefined, { signal: this.#pause.signal }).catch(() => {});
    }
  }

  /** How long statements are still sent. */
  get #left(): number {
    return this.#giveUpAt - Date.now();
  }

  /**
   * From then on (`Date.now()`) no statement is sent any more. A call that pauses is repeated at once, if there is time. What is
   * under way at the time of the cut fails then: neither a lock nor a server that does not answer holds up the end.
   */
  giveUpAt(time: number, cutAt = time): void {
    this.#spare?.giveUpAt(time, cutAt);
    this.#giveUpAt = time;
    clearTimeout(this.#cutting);
    if (Number.isFinite(cutAt)) {
      this.#cutting = setTimeout(
        () => {
          for (const client of [this.#running, this.#connecting]) destroy(client);
        },
        forTimer(cutAt - Date.now()),
      ).unref();
    }
    // It would connect for nothing.
    if (time <= Date.now()) destroy(this.#connecting);
    this.#pause.abort();
    this.#pause = new AbortController();
  }

  /**
   * Ends the call under way, which fails with 57014 then. What it has committed before that stays. If it is not sent now, for
   * lack of a connection, it is not sent again.
   */
  interrupt(): void {
    const client = this.#running as (Client & { processID: number; secretKey: number | Buffer }) | undefined;
    if (!client) {
      this.#missed = this.#calls > 0;
      return;
    }
    this.#interrupted = true;
    // The request of the protocol, not pg_cancel_backend(): it finds its way through PgBouncer as well.
    const secret = client.secretKey;
    const key = typeof secret === "number" ? int32(secret) : Buffer.from(secret);
    const body = Buffer.concat([int32(CANCEL_REQUEST), int32(client.processID), key]);
    const socket = client.host.startsWith("/")
      ? connect(`${client.host}/.s.PGSQL.${client.port}`)
      : connect(client.port, client.host);
    // If the request gets lost, the statement ends when its time is up.
    socket.on("error", () => socket.destroy());
    socket.end(Buffer.concat([int32(body.length + 4), body]));
  }

  /** Closes the connection, and fails what is under way. The next call opens another one. */
  async close(): Promise<void> {
    this.giveUpAt(0);
    const [client] = await Promise.all([
      this.#client ?? this.#opening?.catch(() => undefined),
      this.#spare?.close(),
    ]);
    this.#client = undefined;
    if (client) await end(client);
    this.giveUpAt(Number.POSITIVE_INFINITY);
  }

  #open(): Promise<Client> {
    this.#opening ??= this.#connect().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  async #connect(): Promise<Client> {
    const client = this.#make();
    client.on("error", () => this.#forget(client));
    client.on("end", () => this.#forget(client));
    this.#connecting = client;
    try {
      await client.connect();
    } catch (error) {
      this.#drop(client);
      throw error;
    } finally {
      this.#connecting = undefined;
    }
    this.#client = client;
    return client;
  }

  #dismiss(): void {
    if (this.#client) this.#drop(this.#client);
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
 * An answer, if it comes in time. The `query_timeout` of pg would throw away one that came while a handler computed, and with it what it
 * grants: timers are looked at before sockets are. So this looks at the socket once more before it gives up.
 */
function answered<T>(client: Refable, answer: Promise<T>, timeout: number): Promise<T> {
  if (timeout === 0) return answer;
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    let over = false;
    const { stream } = client.connection;
    const wait = () => {
      if (over) return;
      timer = setTimeout(() => {
        const read = stream.bytesRead;
        // After that an answer is there, or a part of it, or there is none.
        setImmediate(() => (stream.bytesRead === read ? reject(new Error(NO_ANSWER)) : wait()));
      }, forTimer(timeout));
    };
    wait();
    answer.then(resolve, reject).finally(() => {
      over = true;
      clearTimeout(timer);
    });
  });
}

/** Says goodbye. A server that does not heed it is left. */
export async function end(client: Client): Promise<void> {
  (client as Refable).ref();
  const left = setTimeout(() => destroy(client), CLOSING);
  await client.end().catch(() => {});
  clearTimeout(left);
}

function destroy(client: Client | undefined): void {
  (client as Refable | undefined)?.connection.stream.destroy();
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value | 0);
  return bytes;
}
