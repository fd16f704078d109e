import { setTimeout as sleep } from "node:timers/promises";
import { describe, sqlState } from "./errors.js";
import { cannotBeSent, isInternal, isPassing, isTimeOut, TRIES } from "./failures.js";
import { MOMENT } from "./leases.js";
import type { Performance } from "./performance.js";
import type { Claim, Granted, Queue, Refused } from "./queue.js";
import type { Logger } from "./types.js";

/** The time between attempts at a return alone: {@link TRIES} before it is made a short one, and before it is given up. */
const PAUSE = 200;
/** For how long the late returns wait for their locks in one round. */
const LATE_ROUND = 1000;

/** What the returns ask of the worker, and tell it. */
export interface Returner {
  /** A claim in the place of those that leave, counted from now on. */
  claim(leaving: Performance[]): Claim;
  /** That claim is over. */
  claimed(claim: Claim): void;
  /** These are not in hand any more, and those were granted in their place. */
  returned(performances: Performance[], granted?: Granted[]): void;
  fail(error: unknown): void;
}

/** How what has ended is returned: together, and one by one where one is in the way of the others. */
export class Returns {
  readonly #queue: Queue;
  readonly #log: Logger;
  readonly #worker: Returner;
  #late = 0;

  constructor(queue: Queue, log: Logger, worker: Returner) {
    this.#queue = queue;
    this.#log = log;
    this.#worker = worker;
  }

  /** Returns what has ended, and takes as much again, unless it is to be returned `alone`. */
  async send(ended: Performance[], alone = false): Promise<void> {
    // The task of a lost one is another's by now, or gone.
    const kept = ended.filter(({ text, task }) => text !== undefined && !task.lost);
    const claim = this.#worker.claim(ended);
    if (alone) claim.max = 0;
    let granted: Granted[] = [];
    try {
      if (kept.length > 0 || claim.max > 0) granted = await this.#sendTogether(kept, claim, MOMENT);
    } catch (error) {
      // It may be what was to be granted: a claim finds out.
      if (cannotBeSent(error) && claim.max > 0) {
        this.#worker.claimed(claim);
        return this.send(ended, true);
      }
      this.#worker.claimed(claim);
      this.#worker.returned(ended.filter((performance) => !kept.includes(performance)));
      return this.#divide(kept, error);
    }
    this.#worker.claimed(claim);
    this.#worker.returned(ended, granted);
  }

  async #sendTogether(kept: Performance[], claim: Claim, lockTimeout: number): Promise<Granted[]> {
    const texts = kept.map((performance) => performance.text as string);
    const { refused, granted } = await this.#queue.returnAndOwn(texts, claim, lockTimeout);
    this.#tell(kept, refused);
    return granted;
  }

  /** One that cannot be returned, or not now, fails the call. So each is returned alone. */
  async #divide(kept: Performance[], error: unknown): Promise<void> {
    // A claim is made without returns, if there is anything to claim.
    if (!mayPass(error) && !(isRefusal(error) && kept.length > 0)) throw error;
    if (kept.length === 1) {
      const [performance] = kept as [Performance];
      if (mayPass(error)) return void this.late(performance);
      this.#refuse(performance, error);
    }
    for (const performance of kept) await this.send([performance]);
  }

  /** A return that was refused is made once more, as a short one that says why. */
  #refuse(performance: Performance, error: unknown): void {
    if (performance.refused) throw error;
    this.#log.warn(`${performance.task.id}: its return was refused: ${describe(error)}`);
    performance.refuse(error);
  }

  /**
   * Returns a task that is locked, or takes too long, or has met an error inside the server, where it is in the way of no other.
   * It stays in hand until then.
   */
  async late(performance: Performance): Promise<void> {
    performance.late = true;
    this.#late++;
    // It leaves its slot, if not the hand.
    this.#worker.returned([]);
    try {
      for (let tries = 0; !performance.task.lost; ) {
        try {
          await this.#sendLate(performance);
          break;
        } catch (error) {
          // What has the lock decides how long it takes.
          if (sqlState(error) === "55P03") continue;
          if (!isTimeOut(error) && !isRefusal(error)) throw error;
          if (mayPass(error) && ++tries < TRIES) await sleep(PAUSE);
          else {
            this.#refuse(performance, error);
            tries = 0;
          }
        }
      }
    } catch (error) {
      this.#log.error(`${performance.task.id}: not returned, free when its lease ends: ${describe(error)}`);
      if (!isPassing(error) && (!isRefusal(error) || sqlState(error) === "42501")) this.#worker.fail(error);
    } finally {
      if (--this.#late === 0) void this.#queue.closeLate();
      this.#worker.returned([performance]);
    }
  }

  async #sendLate(performance: Performance): Promise<void> {
    const claim = this.#worker.claim([]);
    this.#worker.claimed(claim);
    const lockTimeout = Math.max(Math.round(LATE_ROUND / this.#late), MOMENT);
    this.#tell([performance], await this.#queue.returnLate(performance.text as string, claim, lockTimeout));
  }

  #tell(kept: Performance[], refused: Refused[]): void {
    for (const { task_id, sqlstate } of refused) {
      const performance = kept.find(({ task }) => task.id === task_id);
      if (performance?.task.wasCompleted) continue; // by its handler, as the refusal tells
      this.#log.warn(`${task_id}: dropped, the task is not ours any more (${sqlstate})`);
    }
  }
}

/** Whether the same return may go through at another time: it has taken too long, or has met an error inside the server. */
function mayPass(error: unknown): boolean {
  return isTimeOut(error) || isInternal(error);
}

/** Whether the server refuses the return as it is. */
function isRefusal(error: unknown): boolean {
  return /^(22|23|54|TQ|XX|42501)/.test(sqlState(error) ?? "");
}
