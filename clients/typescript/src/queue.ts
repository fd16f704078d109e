import { setTimeout as pause } from "node:timers/promises";
import pg, { type Client } from "pg";
import { inMilliseconds, type Json } from "./encode.js";
import { isBroken } from "./failures.js";
import { Link, type LinkOptions } from "./link.js";
import { Terms } from "./terms.js";

/** A row of `own_tasks`. */
export interface Granted {
  task_id: string;
  token: string;
  action: string;
  body: string | null;
  num_tries: number;
  num_failures: number;
  checkpoint: unknown;
  results: GrantedResult[] | null;
  priority: number;
  metadata: Record<string, unknown> | null;
  steps?: Record<string, unknown> | null;
  /** Whether results or steps are missing since they are too large for a row. */
  incomplete: boolean;
  /** When it is free for others, in milliseconds since 1970 by the queue's clock. */
  deadline: number | null;
}

/** An element of its column `results`. */
export interface GrantedResult {
  task_id: string;
  action: string;
  status_code: "completed" | "aborted";
  status: string | null;
  result: unknown;
}

/** What a claim asks for. */
export interface Claim {
  max: number;
  actions: string[];
  lease: string;
  withResults: boolean;
  withSteps: boolean;
}

/** A performance, as the queue knows it. */
export interface Held {
  task_id: string;
  token: string;
}

/** The keys of a return, as in "A task as JSON" of the reference. */
export interface Return {
  status_code: "completed" | "aborted" | "pending";
  status?: string;
  result?: unknown;
  retry_after?: string;
  count_try?: boolean;
  children?: Json[];
  children_block?: boolean;
  delay_children?: string;
  delay_workgroup?: string;
  depends_on?: Json[];
  wait_at_most?: string;
}

/**
 * How long a statement may sleep: shorter than a time-out of the server's, which would end it each time. `transaction_timeout`,
 * of PostgreSQL 17 and later, ends the session as well. NULL: as long as it likes.
 */
export const LONGEST_SLEEP = `0.8 * least(nullif(current_setting('statement_timeout'), '0')::interval,
    nullif(current_setting('transaction_timeout', true), '0')::interval)`;

/**
 * An empty text, and the `lock_timeout` of the statement that it is a part of: the arguments of a function come before its
 * call. Nothing of it is left on the connection, which may be a pooler's. It is over before the statement's time is.
 */
function settingLockTimeout(parameter: string): string {
  const shortest = `least(${parameter}::interval, ${LONGEST_SLEEP})`;
  return `left(set_config('lock_timeout', ceil(1000 * extract(epoch FROM ${shortest})) || 'ms', true), 0)`;
}

/** The queue's times go by its own clock, in milliseconds. */
const DEADLINE = "floor(1000 * extract(epoch FROM action_deadline))::bigint AS deadline";

const COLUMNS = `task_id, token, action, body, num_tries, num_failures, checkpoint, results, priority, metadata, incomplete, ${DEADLINE}`;

/** The time between two calls that end the sleep of a claim, in milliseconds: it may not have begun at the first one. */
const WAKE_AGAIN = 50;

/** How long a claim sleeps in the server, in milliseconds. A sleeping statement holds a snapshot, so it is not for longer. */
const SLEEP = 10_000;

/**
 * What a worker says to the queue: one SQL call each. It has a connection for claims, which sleep there, one for returns, and one
 * for heartbeats and other calls that wait for nothing; and for as long as a task is locked one for late returns.
 */
export class Queue {
  readonly #claims: Link;
  readonly #returns: Link;
  readonly #beats: Link;
  readonly #late: Link;
  readonly #claimTerms = new Terms();
  readonly #terms = new Terms();
  /** Under this name it owns tasks. */
  readonly actor: string;
  /** How long a claim may sleep where its connection leads to, in milliseconds. */
  #sleep = SLEEP;
  /** How many claims are under way that may sleep. */
  #asking = 0;
  #waking = false;

  /** `lost` is called when something that the actor owns is taken away. */
  constructor(options: Omit<LinkOptions, "terms">, actor: string, lost: () => void) {
    const { timeout = 0 } = options;
    const rest = { ...options, terms: this.#terms };
    this.#claims = new Link({
      ...options,
      terms: this.#claimTerms,
      // It sleeps, for longer than an answer may take elsewhere.
      timeout: timeout && Math.max(timeout, 6 * SLEEP),
      met: (client) => this.#meet(client),
    });
    this.#returns = new Link(rest);
    this.#late = new Link(rest);
    this.#beats = new Link({ ...rest, met: (client) => listen(client, actor, lost) });
    this.actor = actor;
  }

  /** A claim does no more than to pass its rows on, or it would not see to what is due: how long it sleeps is known before. */
  async #meet(client: Client): Promise<void> {
    const { rows } = await client.query(`SELECT floor(1000 * extract(epoch FROM ${LONGEST_SLEEP}))::bigint AS longest`);
    this.#sleep = Math.min(SLEEP, rows[0].longest ?? SLEEP);
  }

  /** Lengths of time in milliseconds. The server reads intervals, so that none is read differently here. */
  async milliseconds(intervals: string[]): Promise<number[]> {
    const query = "SELECT (1000 * extract(epoch FROM i::interval))::bigint AS ms FROM unnest($1::text[]) AS i";
    return (await this.#beats.call(query, [intervals])).map((row) => row.ms);
  }

  /** The queue's clock, in milliseconds. */
  async clock(): Promise<number> {
    const query = `SELECT ${inMilliseconds("taskq.clock()")} AS now`;
    return (await this.#beats.call(query, []))[0].now;
  }

  /** The rows of a statement that waits for nothing, such as of a setting. */
  say(text: string, values: unknown[]): Promise<any[]> {
    return this.#beats.call(text, values);
  }

  /** Whether it is told of what is taken away. */
  get hears(): boolean {
    return this.#beats.isOpen;
  }

  /** Up to so many tasks. If it `sleeps` it does so in the server until there are some. */
  async own(claim: Claim, sleeps: boolean): Promise<Granted[]> {
    const { max, actions, lease, withResults } = claim;
    const values = () => {
      const wait = sleeps ? `${this.#sleep} milliseconds` : null;
      return [this.actor, max, actions, lease, wait, withResults];
    };
    this.#asking++;
    try {
      return await this.#claims.call(
        `SELECT ${columns(claim)} FROM taskq.own_tasks($1, $2, $3, $4, $5, $6${steps(claim)})`,
        values,
        { name: `taskq own${steps(claim)}` },
      );
    } finally {
      this.#asking--;
    }
  }

  /** Ends the sleep of {@link own}: it comes back with what was granted before, if anything. */
  async wake(): Promise<void> {
    if (this.#waking) return;
    this.#waking = true;
    try {
      while (this.#asking > 0) {
        await this.#beats.query("SELECT taskq.stop_waiting($1)", [this.actor]);
        await pause(WAKE_AGAIN, undefined, { ref: false });
      }
    } catch {
      // The sleep ends when its time is up, or with its connection.
    } finally {
      this.#waking = false;
    }
  }

  /** Returns tasks and takes others, in one call: what was refused, and what was granted. */
  returnAndOwn(returns: string[], claim: Claim, lockTimeout: number): Promise<Returned> {
    return this.#return(this.#returns, returns, claim, lockTimeout);
  }

  /** Returns a task on a connection of its own, where it holds up no other. */
  async returnLate(text: string, claim: Claim, lockTimeout: number): Promise<Refused[]> {
    return (await this.#return(this.#late, [text], { ...claim, max: 0 }, lockTimeout)).refused;
  }

  async #return(link: Link, returns: string[], claim: Claim, lockTimeout: number): Promise<Returned> {
    const { max, actions, lease, withResults } = claim;
    const rows = await link.call(
      `SELECT sqlstate, ${columns(claim)}
         FROM taskq.return_and_own_tasks($1 || ${settingLockTimeout("$7")}, $2::jsonb, $3, $4::text[], $5, $6${steps(claim)})`,
      [this.actor, `[${returns.join(",")}]`, max, actions, lease, withResults, `${lockTimeout}ms`],
      { name: `taskq return${steps(claim)}`, divisible: true },
    );
    const first = rows.findIndex((row) => row.sqlstate === null);
    const count = first === -1 ? rows.length : first;
    return { refused: rows.slice(0, count), granted: rows.slice(count) };
  }

  /**
   * Moves deadlines; of each task whether it is still held. It is not repeated here: the next heartbeat comes. A connection
   * may be dead without a word, so it waits for its answer no longer than `timeout`. A task that another transaction has locked
   * for longer than `lockTimeout` fails the call.
   */
  async extend(held: Held[], lease: string, lockTimeout: number, timeout: number): Promise<Extended[]> {
    const ids = held.map((task) => task.task_id);
    const tokens = held.map((task) => task.token);
    return this.#beats.query(
      `SELECT owned, (${inMilliseconds("action_deadline")} - ${inMilliseconds("taskq.clock()")}) AS left
         FROM taskq.extend_tasks_ownership($1 || ${settingLockTimeout("$5")}, $2::text[], $3::uuid[], $4)`,
      [this.actor, ids, tokens, lease, `${lockTimeout}ms`],
      { name: "taskq extend", timeout },
    );
  }

  /** What has become of tries that have failed. */
  outcomes(taskIds: string[]): Promise<Outcome[]> {
    return this.#beats.query(
      `SELECT id, state, num_tries, max_tries, ${inMilliseconds("not_before")} AS next_at
         FROM taskq.tasks WHERE id = ANY ($1)`,
      [taskIds],
    );
  }

  /** Claims no more. The claim under way has `patience` to end. */
  claimNoMore(patience: number): void {
    this.#claimTerms.giveUpAt(0, Date.now() + patience);
    void this.wake();
  }

  /** Claims no more, and sends nothing after this time (`Date.now()`). */
  stop(giveUpAt: number, patience: number): void {
    this.#terms.giveUpAt(giveUpAt);
    this.claimNoMore(patience);
  }

  /** No return is late any more. */
  closeLate(): Promise<void> {
    return this.#late.close();
  }

  /** Nothing is claimed any more, and what is in hand still returned. */
  closeClaims(): Promise<void> {
    return this.#claims.close();
  }

  /** Closes the connections, and fails what is under way. */
  async close(): Promise<void> {
    this.stop(0, 0);
    await Promise.all([this.#claims, this.#returns, this.#beats, this.#late].map((link) => link.close()));
  }
}

/** What is taken from the actor is told on a channel. */
async function listen(client: Client, actor: string, lost: () => void): Promise<void> {
  try {
    const { rows } = await client.query("SELECT taskq.lost_channel($1) AS name", [actor]);
    await client.query(`LISTEN ${pg.escapeIdentifier(rows[0].name)}`);
    client.on("notification", lost);
  } catch (error) {
    // What cannot listen, as on a standby, learns the same from the next heartbeat.
    if (isBroken(error)) throw error;
  }
}

/** A task after a try. */
export interface Outcome {
  id: string;
  state: string;
  num_tries: number;
  /** NULL: as many as it takes. */
  max_tries: number | null;
  next_at: number | null;
}

/** What an extension says of a task: whether it is still held, and for how many milliseconds from now on. */
export interface Extended {
  owned: boolean;
  left: number | null;
}

/** What a call has refused, and what it has granted. */
export interface Returned {
  refused: Refused[];
  granted: Granted[];
}

/** A return that was refused, and why: TQ001 or TQ003. */
export interface Refused {
  task_id: string;
  sqlstate: string;
}

/** The steps are asked for only where there are workflows, and so are columns that the other claims leave empty. */
function columns({ withSteps }: Claim): string {
  return withSteps ? `${COLUMNS}, steps` : COLUMNS;
}

function steps({ withSteps }: Claim): string {
  return withSteps ? ", with_steps => true" : "";
}
