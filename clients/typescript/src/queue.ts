import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "pg";
import { inMilliseconds, type Json } from "./encode.js";
import { Link, type Sending } from "./link.js";
import { Terms } from "./terms.js";
import type { Logger } from "./types.js";

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

/** How long a claim sleeps. NULL: not at all. */
const WAIT = `CASE WHEN $5::interval IS NOT NULL THEN least($5::interval, ${LONGEST_SLEEP}) END`;

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

/** How long a return waits for a statement of the app before it goes another way. */
const PATIENCE = 200;

/**
 * What a worker says to the queue: one SQL call each. Two connections do, however many tasks are in hand: one that sleeps in
 * claims, and the app's. What the app and its handlers say there may wait for locks. Returns and heartbeats, which do not, then
 * have a connection for moments, that nothing else is sent over; and so has the return of a task that is locked or takes too long.
 */
export class Queue {
  readonly #waiter: Link;
  readonly #rest: Link;
  readonly #urgent: Link;
  readonly #late: Link;
  readonly #claims = new Terms();
  readonly #terms = new Terms();
  readonly #urgently: Sending;
  /** Under this name it owns tasks. */
  readonly actor: string;
  /** How many claims are under way that may sleep. */
  #asking = 0;
  #waking = false;

  constructor(
    make: () => Client,
    rest: Link,
    actor: string,
    log: Logger,
    { prepare, timeout, claimTimeout }: { prepare: boolean; timeout: number; claimTimeout: number },
  ) {
    this.#waiter = new Link(make, log, { prepare, timeout: claimTimeout });
    this.#rest = rest;
    // The spare one is for heartbeats while a return takes long.
    this.#urgent = new Link(make, log, { brief: true, spare: true, timeout });
    this.#late = new Link(make, log, { brief: true, timeout });
    this.#urgently = { terms: this.#terms, otherwise: this.#urgent, patience: PATIENCE };
    this.actor = actor;
  }

  /** Lengths of time in milliseconds. The server reads intervals, so that none is read differently here. */
  async milliseconds(intervals: string[]): Promise<number[]> {
    const query =
      "SELECT (1000 * extract(epoch FROM i::interval))::bigint AS ms FROM unnest($1::text[]) AS i";
    return (await this.#rest.call(query, [intervals], this.#urgently)).map((row) => row.ms);
  }

  /** The queue's clock, in milliseconds. */
  async clock(): Promise<number> {
    const query = `SELECT ${inMilliseconds("taskq.clock()")} AS now`;
    return (await this.#rest.call(query, [], this.#urgently))[0].now;
  }

  /** Up to so many tasks. With `wait` it sleeps in the server until there are some. */
  async own(claim: Claim, wait: string | null): Promise<Granted[]> {
    const { max, actions, lease, withResults } = claim;
    this.#asking++;
    try {
      return await this.#waiter.call(
        `SELECT ${columns(claim)} FROM taskq.own_tasks($1, $2, $3, $4, ${WAIT}, $6${steps(claim)})`,
        [this.actor, max, actions, lease, wait, withResults],
        { name: `taskq own${steps(claim)}`, terms: this.#claims },
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
        await this.#rest.query("SELECT taskq.stop_waiting($1)", [this.actor], this.#urgently);
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
    return this.#return(this.#rest, this.#urgently, returns, claim, lockTimeout);
  }

  /** Returns a task on a connection of its own, where it holds up no other. */
  async returnLate(text: string, claim: Claim, lockTimeout: number): Promise<Refused[]> {
    const sending = { terms: this.#terms };
    return (await this.#return(this.#late, sending, [text], { ...claim, max: 0 }, lockTimeout)).refused;
  }

  async #return(
    link: Link,
    sending: Sending,
    returns: string[],
    claim: Claim,
    lockTimeout: number,
  ): Promise<Returned> {
    const { max, actions, lease, withResults } = claim;
    const rows = await link.call(
      `SELECT sqlstate, ${columns(claim)}
         FROM taskq.return_and_own_tasks($1 || ${settingLockTimeout("$7")}, $2::jsonb, $3, $4::text[], $5, $6${steps(claim)})`,
      [this.actor, `[${returns.join(",")}]`, max, actions, lease, withResults, `${lockTimeout}ms`],
      { ...sending, name: `taskq return${steps(claim)}`, divisible: true },
    );
    const first = rows.findIndex((row) => row.sqlstate === null);
    const count = first === -1 ? rows.length : first;
    return { refused: rows.slice(0, count), granted: rows.slice(count) };
  }

  /**
   * Moves deadlines; of each task whether it is still held. It is not repeated here: the next heartbeat comes. A connection
   * may be dead without a word, so it waits for its answer no longer than `timeout`, nor for its turn than `patience`. A task
   * that another transaction has locked for longer than `lockTimeout` fails the call.
   */
  async extend(
    held: Held[],
    lease: string,
    lockTimeout: number,
    times: { timeout: number; patience: number },
  ): Promise<Extended[]> {
    const ids = held.map((task) => task.task_id);
    const tokens = held.map((task) => task.token);
    return this.#rest.query(
      `SELECT owned, (${inMilliseconds("action_deadline")} - ${inMilliseconds("taskq.clock()")}) AS left
         FROM taskq.extend_tasks_ownership($1 || ${settingLockTimeout("$5")}, $2::text[], $3::uuid[], $4)`,
      [this.actor, ids, tokens, lease, `${lockTimeout}ms`],
      { ...this.#urgently, ...times, name: "taskq extend" },
    );
  }

  /** What the tasks that a task ran after have left, one row each, however large they are together. */
  results(taskId: string): Promise<GrantedResult[]> {
    return this.#rest.call("SELECT * FROM taskq.dependency_results($1)", [taskId], this.#urgently);
  }

  /** What has become of tries that have failed. */
  outcomes(taskIds: string[]): Promise<Outcome[]> {
    return this.#rest.query(
      `SELECT id, state, num_tries, max_tries, ${inMilliseconds("not_before")} AS next_at
         FROM taskq.tasks WHERE id = ANY ($1)`,
      [taskIds],
      this.#urgently,
    );
  }

  /** The steps that a task has saved, one row each. */
  async steps(taskId: string): Promise<Record<string, unknown>> {
    const query = "SELECT step, result FROM taskq.steps WHERE task_id = $1";
    const rows = await this.#rest.call(query, [taskId], this.#urgently);
    return Object.fromEntries(rows.map(({ step, result }) => [step, result]));
  }

  /** Claims no more. The claim under way has `patience` to end. */
  claimNoMore(patience: number): void {
    this.#claims.giveUpAt(0, Date.now() + patience);
    void this.wake();
  }

  /** Claims no more, and sends nothing after this time (`Date.now()`). */
  stop(giveUpAt: number, patience: number): void {
    this.#terms.giveUpAt(giveUpAt);
    this.claimNoMore(patience);
  }

  /** Closes the connections but the app's, over which a worker that has failed still returns what was in hand. */
  async close(): Promise<void> {
    await Promise.all([this.#waiter, this.#urgent, this.#late].map((link) => link.close()));
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
