import { forTimer, interval } from "./encode.js";
import { describe, sqlState, TaskLost } from "./errors.js";
import { isTimeOut } from "./failures.js";
import type { Registered } from "./handlers.js";
import { PATIENCE } from "./link.js";
import type { Performance } from "./performance.js";
import type { Queue } from "./queue.js";
import type { Duration, Logger } from "./types.js";

/** How long a call that is about many tasks waits for a lock, in milliseconds: other calls hold theirs for moments. */
export const MOMENT = 20;
/** The same for a task by itself, once another transaction may have locked it for long. */
const NO_PATIENCE = 1;

/** The leases of what is in hand: how long they are, and the heartbeat that extends them. */
export class Leases {
  readonly #queue: Queue;
  readonly #actions: Map<string, Registered>;
  readonly #hand: Set<Performance>;
  readonly #log: Logger;
  readonly #milliseconds = new Map<string, number>();
  #shortest = "";

  constructor(queue: Queue, actions: Map<string, Registered>, hand: Set<Performance>, log: Logger) {
    this.#queue = queue;
    this.#actions = actions;
    this.#hand = hand;
    this.#log = log;
  }

  /** The lease of the claims. */
  get shortest(): string {
    return this.#shortest;
  }

  /** Reads the lengths of the leases, and returns that of another duration in milliseconds. */
  async read(duration: Duration): Promise<number> {
    const leases = [...new Set([...this.#actions.values()].map((registered) => registered.lease))];
    const [other, ...milliseconds] = await this.#queue.milliseconds([interval(duration), ...leases]);
    leases.forEach((lease, n) => {
      this.#milliseconds.set(lease, milliseconds[n] as number);
    });
    this.#shortest = leases.reduce((a, b) => (this.#ms(b) < this.#ms(a) ? b : a));
    if (this.#ms(this.#shortest) < 100)
      throw new RangeError(`a lease of "${this.#shortest}" is too short to be extended in time`);
    return other as number;
  }

  #ms(lease: string): number {
    return this.#milliseconds.get(lease) as number;
  }

  /** The lease of a task's action. */
  of({ task }: Performance): string {
    return (this.#actions.get(task.action) as Registered).lease;
  }

  /** One heartbeat for all tasks in hand, at a third of the shortest lease. */
  beat(): NodeJS.Timeout {
    let beating = false;
    return setInterval(
      () => {
        // What has ended is ours until it is returned.
        const held = [...this.#hand].filter(({ task }) => !task.lost);
        if (beating || held.length === 0) return;
        beating = true;
        void this.extend(held).finally(() => {
          beating = false;
        });
      },
      forTimer(this.#ms(this.#shortest) / 3),
    );
  }

  /** Extends leases, a call for each length there is. */
  async extend(held: Performance[]): Promise<void> {
    for (const lease of this.#milliseconds.keys()) {
      const alike = held.filter((performance) => this.of(performance) === lease);
      await this.#extendTogether(
        alike.filter((performance) => !isLocked(performance)),
        lease,
      );
      await this.#extendEach(alike.filter(isLocked), lease);
    }
  }

  async #extendTogether(alike: Performance[], lease: string): Promise<void> {
    if (alike.length === 0) return;
    try {
      await this.#send(alike, lease, MOMENT);
    } catch (error) {
      // One task that another transaction has locked costs the others nothing.
      if (isTimeOut(error) && sqlState(error)) await this.#extendEach(alike, lease);
      else this.#log.warn(`no heartbeat: ${describe(error)}`);
    }
  }

  async #extendEach(alike: Performance[], lease: string): Promise<void> {
    for (const performance of alike) {
      try {
        await this.#send([performance], lease, NO_PATIENCE);
      } catch (error) {
        if (!isLocked(performance))
          this.#log.warn(`no heartbeat for ${performance.task.id}: ${describe(error)}`);
        // Without a connection the others would fail as well, and each in its time.
        if (!sqlState(error)) return;
      }
    }
  }

  async #send(alike: Performance[], lease: string, lockTimeout: number): Promise<void> {
    const pairs = alike.map(({ task }) => ({ task_id: task.id, token: task.token }));
    const shortest = this.#ms(this.#shortest);
    // The next heartbeat, over another connection, still comes in time then.
    const times = { timeout: shortest / 4, patience: Math.min(shortest / 6, PATIENCE) };
    const owned = await this.#queue.extend(pairs, lease, lockTimeout, times);
    for (const [n, performance] of alike.entries()) if (!owned[n]) this.#lose(performance);
  }

  #lose(performance: Performance): void {
    // Ended meanwhile: then the heartbeat came after its return, or after its handler's.
    if (performance.ended || performance.task.wasCompleted) return;
    this.#log.warn(`${performance.task.action} ${performance.task.id}: lost, it was cancelled or taken over`);
    performance.task.abort(new TaskLost(`task "${performance.task.id}" is not ours any more`));
  }
}

/**
 * Whether it is known to be locked: its handler is completing it, and has not committed yet; or its return waits for another
 * transaction. Either may come to nothing.
 */
function isLocked({ late, task }: Performance): boolean {
  return late || task.wasCompleted;
}
