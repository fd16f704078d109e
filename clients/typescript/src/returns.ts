import { describe, sqlState } from "./errors.js";
import { isPassing, isTimeOut } from "./link.js";
import type { Performance } from "./performance.js";
import type { Claim, Granted, Queue, Refused } from "./queue.js";
import type { Logger } from "./types.js";

/** How often a return by itself may take too long before it is made a short one, and before it is given up. */
const TRIES = 3;
/** For how long a late return waits for a lock, before the other late ones have their turn. */
const LATE_LOCK = 1000;

/** What the returns ask of the worker, and tell it. */
export interface Returner {
  /** How long a return may wait for a lock that another transaction has, while others are in the same call. */
  lockTimeout(): number;
  /** A claim in the place of those that leave, counted from now on. */
  claim(leaving: Performance[]): Claim;
  /** That claim is over. */
  claimed(claim: Claim): void;
  /** A late return was made, or given up. */
  gone(performance: Performance): void;
  fail(error: unknown): void;
}

/** How what has ended is returned: together, and one by one where one is in the way of the others. */
export class Returns {
  readonly #queue: Queue;
  readonly #log: Logger;
  readonly #worker: Returner;

  constructor(queue: Queue, log: Logger, worker: Returner) {
    this.#queue = queue;
    this.#log = log;
    this.#worker = worker;
  }

  /** Returns what has ended, and takes as much again. What is `late` afterwards is not returned yet. */
  async send(ended: Performance[]): Promise<Granted[]> {
    // The task of a lost one is another's by now, or gone.
    const kept = ended.filter((performance) => performance.text !== undefined && !performance.task.lost);
    const claim = this.#worker.claim(ended);
    try {
      if (kept.length === 0 && claim.max === 0) return [];
      const texts = kept.map((performance) => performance.text as string);
      const { refused, granted } = await this.#queue.returnAndOwn(texts, claim, this.#worker.lockTimeout());
      this.#tell(kept, refused);
      return granted;
    } catch (error) {
      return await this.#divide(kept, error);
    } finally {
      this.#worker.claimed(claim);
    }
  }

  /** One that cannot be returned, or not now, fails the call. So each is returned by itself. */
  async #divide(kept: Performance[], error: unknown): Promise<Granted[]> {
    if (!isTimeOut(error) && !(isRefusal(error) && kept.length > 0)) throw error;
    if (kept.length === 1) {
      const [performance] = kept as [Performance];
      if (isTimeOut(error)) {
        void this.late(performance);
        return [];
      }
      this.#refuse(performance, error);
    }
    const granted: Granted[] = [];
    for (const performance of kept) granted.push(...(await this.send([performance])));
    return granted;
  }

  /** A return that was refused is made once more, as a short one that says why. */
  #refuse(performance: Performance, error: unknown): void {
    if (performance.refused) throw error;
    this.#log.warn(`${performance.task.id}: its return was refused: ${describe(error)}`);
    performance.refuse(error);
  }

  /** Returns a task that is locked, or takes too long, where it is in the way of no other. It stays in hand until then. */
  async late(performance: Performance): Promise<void> {
    performance.late = true;
    try {
      for (let tries = 0; !performance.task.lost; ) {
        try {
          await this.#sendLate(performance);
          break;
        } catch (error) {
          // What has the lock decides how long it takes.
          if (sqlState(error) === "55P03" || (isTimeOut(error) && ++tries < TRIES)) continue;
          if (!isTimeOut(error) && !isRefusal(error)) throw error;
          this.#refuse(performance, error);
          tries = 0;
        }
      }
    } catch (error) {
      this.#log.error(`${performance.task.id}: not returned, free when its lease ends: ${describe(error)}`);
      if (!isPassing(error) && (!isRefusal(error) || sqlState(error) === "42501")) this.#worker.fail(error);
    } finally {
      this.#worker.gone(performance);
    }
  }

  async #sendLate(performance: Performance): Promise<void> {
    const claim = this.#worker.claim([]);
    this.#worker.claimed(claim);
    this.#tell([performance], await this.#queue.returnLate(performance.text as string, claim, LATE_LOCK));
  }

  #tell(kept: Performance[], refused: Refused[]): void {
    for (const { task_id, sqlstate } of refused) {
      const performance = kept.find(({ task }) => task.id === task_id);
      if (performance?.task.wasCompleted) continue; // by its handler, as the refusal tells
      this.#log.warn(`${task_id}: dropped, the task is not ours any more (${sqlstate})`);
    }
  }
}

/** Whether the server refuses the return as it is. */
function isRefusal(error: unknown): boolean {
  return /^(22|23|54|TQ|42501)/.test(sqlState(error) ?? "");
}
