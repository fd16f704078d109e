import { interval } from "./durations.js";
import { forTimer } from "./encode.js";
import { describe, Lost, sqlState } from "./errors.js";
import { isTimeOut } from "./failures.js";
import type { Registered } from "./handlers.js";
import type { Performance } from "./performance.js";
import type { Extended, Queue } from "./queue.js";
import type { Duration, Logger } from "./types.js";

/** How long a call that is about many tasks waits for a lock, in milliseconds: other calls hold theirs for moments. */
export const MOMENT = 20;
/** How late an answer of the server may come, in milliseconds, and not be taken for a shorter lease. */
const DELAY = 1000;
/** The same for a task alone, once another transaction may have locked it for long. */
const NO_PATIENCE = 1;

/** The leases of what is in hand: how long they are, and the heartbeat that extends them. */
export class Leases {
  readonly #queue: Queue;
  readonly #actions: Map<string, Registered>;
  readonly #hand: Set<Performance>;
  readonly #log: Logger;
  readonly #milliseconds = new Map<string, number>();
  #shortest = "";
  #timer: NodeJS.Timeout | undefined;
  #beating = false;
  /** Whether something was lost since the heartbeat under way has begun. */
  #heard = false;
  #over = false;
  /** What the queue's clock is ahead of this process' one. */
  #ahead = 0;

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

  /** Reads the queue's clock and the lengths of the leases, and returns those of other durations in milliseconds. */
  async read(durations: Duration[]): Promise<number[]> {
    const asked = Date.now();
    const clock = await this.#queue.clock();
    this.#ahead = clock - (asked + Date.now()) / 2;
    await this.add([...this.#actions.values()]);
    return this.#queue.milliseconds(durations.map((duration) => interval(duration)));
  }

  /** Reads the leases of actions that are to be claimed from now on. */
  async add(actions: Registered[]): Promise<void> {
    const leases = [...new Set(actions.map((registered) => registered.lease))];
    const milliseconds = await this.#queue.milliseconds(leases);
    leases.forEach((lease, n) => {
      if ((milliseconds[n] as number) < 100)
        throw new RangeError(`a lease of "${lease}" is too short to be extended in time`);
      this.#milliseconds.set(lease, milliseconds[n] as number);
    });
    this.#shortest = [...this.#milliseconds.keys()].reduce((a, b) => (this.#ms(b) < this.#ms(a) ? b : a));
    if (this.#timer) this.beat();
  }

  /** A grant: it has the lease of the claims, unless its run time is over earlier. */
  granted(performance: Performance, deadline: number | null): void {
    if (deadline === null) return;
    this.#bound(performance, deadline - this.#ahead - Date.now(), this.#shortest);
  }

  /** A deadline before the end of the lease that was asked for is the end of the run time. */
  #bound(performance: Performance, left: number, lease: string): void {
    const isRunTime = left < this.#ms(lease) - Math.min(this.#ms(lease) / 10, DELAY);
    performance.endsIn(isRunTime ? left : undefined, () => void this.#endRunTime(performance));
  }

  /** The queue decides whether it is over: an extension says then that the task is held no more. */
  async #endRunTime(performance: Performance): Promise<void> {
    try {
      await this.#send([performance], this.of(performance), MOMENT);
    } catch {
      this.#lose(performance);
    }
  }

  #ms(lease: string): number {
    return this.#milliseconds.get(lease) as number;
  }

  /** The lease of a task's action. */
  of({ task }: Performance): string {
    return (this.#actions.get(task.action) as Registered).lease;
  }

  /** Whether each of these was extended within its lease. */
  extended(held: Performance[]): boolean {
    return held.every((performance) => Date.now() - performance.extendedAt < this.#ms(this.of(performance)));
  }

  /** One heartbeat for all tasks in hand, at a third of the shortest lease. */
  beat(): void {
    clearInterval(this.#timer);
    if (this.#over) return;
    this.#timer = setInterval(() => void this.#beat(), forTimer(this.#ms(this.#shortest) / 3));
  }

  /** The heartbeat at once: the queue has told that something was lost. */
  async hear(): Promise<void> {
    this.#heard = true;
    await this.#beat();
  }

  async #beat(): Promise<void> {
    if (this.#beating) return;
    this.#beating = true;
    do {
      this.#heard = false;
      // What has ended is ours until it is returned.
      const held = [...this.#hand].filter(({ task }) => !task.lost);
      if (held.length > 0) await this.extend(held);
    } while (this.#heard && !this.#over);
    this.#beating = false;
  }

  /** No more heartbeats. */
  end(): void {
    this.#over = true;
    clearInterval(this.#timer);
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
        if (!isLocked(performance)) this.#log.warn(`no heartbeat for ${performance.task.id}: ${describe(error)}`);
        // Without a connection the others would fail as well, and each in its time.
        if (!sqlState(error)) return;
      }
    }
  }

  async #send(alike: Performance[], lease: string, lockTimeout: number): Promise<void> {
    const pairs = alike.map(({ task }) => ({ task_id: task.id, token: task.token }));
    // The next heartbeat, over another connection, still comes in time then.
    const extended = await this.#queue.extend(pairs, lease, lockTimeout, this.#ms(this.#shortest) / 4);
    for (const [n, performance] of alike.entries()) {
      const { owned, left } = extended[n] as Extended;
      if (!owned) {
        this.#lose(performance);
        continue;
      }
      performance.extendedAt = Date.now();
      if (left !== null) this.#bound(performance, left, lease);
    }
  }

  #lose(performance: Performance): void {
    // Ended meanwhile: then the heartbeat came after its return, or after its handler's.
    if (performance.ended || performance.task.lost || performance.task.wasCompleted) return;
    const why = performance.outOfTime ? "its `max_run_time` is over" : "it was cancelled or taken over";
    this.#log.warn(`${performance.task.action} ${performance.task.id}: lost, ${why}`);
    performance.task.abort(new Lost(`task "${performance.task.id}" is not ours any more`));
  }
}

/**
 * Whether it is known to be locked: its handler is completing it, and has not committed yet; or its return waits for another
 * transaction. Either may be rolled back.
 */
function isLocked({ late, task }: Performance): boolean {
  return late || task.wasCompleted;
}
