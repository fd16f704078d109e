import { forTimer, interval } from "./encode.js";
import { describe, TaskLost } from "./errors.js";
import type { Registered } from "./handlers.js";
import { isTimeOut } from "./link.js";
import type { Performance } from "./performance.js";
import type { Queue } from "./queue.js";
import type { Duration, Logger } from "./types.js";

/** How long a call waits for a lock at most, where a lease allows for so much. */
const LONGEST_LOCK = 2000;
/** How long it waits at least: other calls hold their locks for moments. */
const SHORTEST_LOCK = 20;

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

  /** How long a call may wait for a lock, so that the leases of the other tasks in it do not end meanwhile. */
  get lockTimeout(): number {
    return Math.max(Math.min(this.#ms(this.#shortest) / 6, LONGEST_LOCK), SHORTEST_LOCK);
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
  beat(): { end(): Promise<void> } {
    let beat: Promise<void> | undefined;
    const beats = setInterval(
      () => {
        const held = [...this.#hand].filter(({ ended, task }) => !ended && !task.lost);
        if (held.length === 0) return;
        beat ??= this.extend(held).finally(() => {
          beat = undefined;
        });
      },
      forTimer(this.#ms(this.#shortest) / 3),
    );
    return {
      end: async () => {
        clearInterval(beats);
        await beat;
      },
    };
  }

  /** Extends leases, a call for each length there is. */
  async extend(held: Performance[]): Promise<void> {
    for (const lease of this.#milliseconds.keys()) {
      const alike = held.filter((performance) => this.of(performance) === lease);
      const free = alike.filter(({ task }) => !task.wasCompleted);
      if (free.length > 0) await this.#extendTogether(free, lease);
      // What its handler is completing is locked until the handler's transaction ends. It may roll back.
      const completing = alike.filter(({ task }) => task.wasCompleted);
      await this.#extendEach(completing, lease, SHORTEST_LOCK);
    }
  }

  async #extendTogether(alike: Performance[], lease: string): Promise<void> {
    const lockTimeout = this.lockTimeout / 2;
    try {
      await this.#send(alike, lease, lockTimeout);
    } catch (error) {
      // One task that another transaction has locked costs the others nothing.
      if (isTimeOut(error) && alike.length > 1)
        await this.#extendEach(alike, lease, Math.max(lockTimeout / alike.length, SHORTEST_LOCK));
      else this.#log.warn(`no heartbeat: ${describe(error)}`);
    }
  }

  async #extendEach(alike: Performance[], lease: string, lockTimeout: number): Promise<void> {
    for (const performance of alike) {
      const { ended, task } = performance;
      if (ended) continue;
      await this.#send([performance], lease, lockTimeout).catch((error) => {
        if (!task.wasCompleted) this.#log.warn(`no heartbeat for ${task.id}: ${describe(error)}`);
      });
    }
  }

  async #send(alike: Performance[], lease: string, lockTimeout: number): Promise<void> {
    const pairs = alike.map(({ task }) => ({ task_id: task.id, token: task.token }));
    const owned = await this.#queue.extend(pairs, lease, this.#ms(this.#shortest) / 6, lockTimeout);
    for (const [n, performance] of alike.entries()) if (!owned[n]) this.#lose(performance);
  }

  #lose(performance: Performance): void {
    // Ended meanwhile: then the heartbeat came after its return, or after its handler's.
    if (performance.ended || performance.task.wasCompleted) return;
    this.#log.warn(`${performance.task.action} ${performance.task.id}: lost, it was cancelled or taken over`);
    performance.task.abort(new TaskLost(`task "${performance.task.id}" is not ours any more`));
  }
}
