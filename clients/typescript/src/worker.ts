import { setTimeout as sleep } from "node:timers/promises";
import { Asking } from "./asking.js";
import { forTimer } from "./encode.js";
import type { Environment } from "./environment.js";
import { describe, WorkerStopped } from "./errors.js";
import { tellFailures } from "./failed.js";
import { cannotBeSent, isPassing } from "./failures.js";
import type { Registered } from "./handlers.js";
import { Leases } from "./leases.js";
import { Performance, type Said } from "./performance.js";
import { type Host, Places, type WorkOptions } from "./places.js";
import type { Claim, Granted, Queue } from "./queue.js";
import { type Returner, Returns } from "./returns.js";
import type { Task } from "./task.js";
import type { Logger } from "./types.js";

/** How long handlers have to end when their signal was aborted because the worker stops. */
const LAST_MOMENT = 500;
/** How long a stopping worker tries to reach a server that does not answer, beyond the grace. */
const PATIENCE = 5000;
/** The same at the second signal, the last moment of the handlers included. */
const HURRY = 2000;
/** So many characters of results go into one call; a larger one goes alone. */
const LARGEST_BATCH = 16_000_000;
const CRASHED = "given back by a process that ends with an error";
/** A worker that has room and has had no answer to a claim for so long is not well, in milliseconds. */
const LONGEST_SILENCE = 30_000;

/**
 * A worker: claims tasks, performs them, extends their leases, returns them. Two loops share the slots. One sleeps in a
 * claim while there are free slots. The other returns what has ended, and takes as much again with the same call; when
 * there is a backlog, it does all the work.
 */
export class Worker {
  readonly #queue: Queue;
  readonly #environment: Environment;
  readonly #actions: Map<string, Registered>;
  readonly #log: Logger;
  readonly #options: WorkOptions;
  readonly #concurrency: number;
  /** What waits for its turn, is performed, or has ended and is not returned yet. */
  readonly #hand = new Set<Performance>();
  readonly #asks: Asking;
  /** Claims under way, and how many leave the hand with the same call. */
  readonly #claims = new Map<Claim, number>();
  readonly #leases: Leases;
  readonly #returns: Returns;
  readonly #places: Places;
  #ended: Performance[] = [];
  #returning: Promise<void> | undefined;
  /** What is said of tries that have failed. */
  #telling: Promise<void> = Promise.resolve();
  #stopping = false;
  /** Whether a claim is under way that may sleep. */
  #asking = false;
  #claimedAt = Date.now();
  #failure: { error: unknown } | undefined;
  #changed: () => void = () => {};
  #change = Promise.resolve();
  #graceOver: NodeJS.Timeout | undefined;
  #grace = 0;
  /** How long after its end the process is to end that a signal has told to, in milliseconds. */
  exitAfter: number | undefined;
  #graceEnds = Number.POSITIVE_INFINITY;
  /** Whether there is nothing left to stop. */
  #over = false;
  /** Whether the process ends with it. */
  #crashed = false;
  #abandoned = false;

  constructor(queue: Queue, environment: Environment, actions: Registered[], options: WorkOptions, log: Logger) {
    this.#queue = queue;
    this.#environment = environment;
    this.#actions = new Map(actions.map((registered) => [registered.action, registered]));
    this.#options = options;
    this.#concurrency = options.concurrency ?? 10;
    this.#log = log;
    this.#asks = new Asking(this.#actions, log, () => this.#tell());
    this.#leases = new Leases(queue, this.#actions, this.#hand, log);
    this.#returns = new Returns(queue, log, this.#returnerOf());
    this.#places = new Places(environment, options, log, this.#hostOf());
    this.#tell();
  }

  /** Works until it is stopped, or idle if that was asked for. */
  async run(): Promise<void> {
    try {
      const { grace = "30 seconds", exitAfter } = this.#options;
      const read = await this.#leases.read(exitAfter === undefined ? [grace] : [grace, exitAfter]);
      [this.#grace, this.exitAfter] = read as [number, number?];
      await this.#environment.begin((text, values) => this.#queue.say(text, values));
      this.#leases.beat();
      const { actor } = this.#queue;
      const actions = [...this.#actions.keys()].join(", ");
      this.#log.info(`${actor} performs tasks of ${actions} in ${this.#environment.where}`);
      await this.#claimAll();
      while (this.#hand.size > 0 && !this.#failure) await this.#change;
      await this.#telling;
    } catch (error) {
      this.#fail(error);
    } finally {
      clearTimeout(this.#graceOver);
      this.#leases.end();
      this.#over = true;
      this.#abandoned = this.#places.performing > 0;
      // A heartbeat may be under way, and get no answer for long. What it has failed with in hand is still returned.
      await (this.holds ? this.#queue.closeClaims() : this.giveUp());
    }
    if (!this.#failure) return;
    const { error } = this.#failure;
    if (!this.#stopping || !isPassing(error)) throw error;
    this.#log.warn(
      `stopped without an answer of the server; what was in hand is free when its lease ends: ${describe(error)}`,
    );
  }

  /** An action that was registered since it has begun. */
  async add(registered: Registered): Promise<void> {
    try {
      await this.#leases.add([registered]);
      this.#actions.set(registered.action, registered);
      // The claim that sleeps does not ask for it.
      await this.#queue.wake();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Something that this worker held was taken from it: its heartbeat learns what. */
  hear(): void {
    void this.#leases.hear();
  }

  /** Claims no more. What runs has the grace to end, or none if it is to be `now`; then it is given back. */
  stop(now: boolean): void {
    const grace = now ? 0 : this.#grace;
    const patience = now ? HURRY : PATIENCE;
    if (this.#over) return;
    this.#stopping = true;
    // Called again, it may end the grace, and does not begin another one.
    this.#graceEnds = Math.min(this.#graceEnds, Date.now() + grace);
    // With nothing in hand, and no claim that may bring any, there is nothing to say any more.
    const idle = this.#hand.size === 0 && !this.#asking;
    this.#queue.stop(idle ? Date.now() : this.#graceEnds + patience, patience);
    clearTimeout(this.#graceOver);
    this.#graceOver = setTimeout(() => void this.#giveBack(), forTimer(this.#graceEnds - Date.now()));
    // A claim that still sleeps would be granted what goes back: then that goes back after the claim has ended.
    if (!this.#asking) this.#places.clear();
    this.#tell();
  }

  /** Whether there is something in hand: once it has failed, that is still returned. */
  get holds(): boolean {
    return this.#hand.size > 0;
  }

  /** Says nothing more, and cuts what it says. */
  async giveUp(): Promise<void> {
    await this.#queue.close();
  }

  /** Whether it claims and extends. */
  get healthy(): boolean {
    const now = Date.now();
    const held = [...this.#hand].filter(({ ended, task }) => !ended && !task.lost && !task.wasCompleted);
    const claims = this.#stopping || this.#free() <= 0 || now - this.#claimedAt < LONGEST_SILENCE;
    return !this.#over && !this.#failure && claims && this.#leases.extended(held);
  }

  /** The process ends by an error: what is in hand goes back, and that of the task whose handler has thrown it as a failed try. */
  crash(error: unknown, culprit: Task | undefined): void {
    if (this.#over) return;
    this.#crashed = this.#stopping = true;
    this.#queue.stop(Date.now() + HURRY, HURRY);
    this.#places.clear();
    for (const performance of this.#hand) {
      if (performance.ended || performance.task.wasCompleted) continue;
      const registered = this.#actions.get(performance.task.action) as Registered;
      const isIts = performance.task === culprit;
      this.#end(performance, isIts ? performance.failed(error, registered) : performance.givenBack(CRASHED));
    }
    this.#tell();
  }

  /** Whether the process ends with it. */
  get crashed(): boolean {
    return this.#crashed;
  }

  /** Whether it has ended and left handlers behind, whatever has become of their tasks. */
  get abandoned(): boolean {
    return this.#abandoned;
  }

  // --- claiming ------------------------------------------------------------------------------------------------------

  async #claimAll(): Promise<void> {
    while (!this.#stopping && !this.#failure) {
      const idle = this.#hand.size === 0;
      const claim = this.#claim(this.#free());
      if (claim.max === 0) {
        if (this.#options.untilIdle && idle) return;
        await this.#change;
        continue;
      }
      const change = this.#change;
      const granted = await this.#own(claim);
      if (!this.#options.untilIdle || granted !== 0) continue;
      if (idle) return;
      // What is in hand may bring more: children, dependents, another try.
      await change;
    }
  }

  /** How many it has brought; undefined: it could not be answered, and the next one asks for less. */
  async #own(claim: Claim): Promise<number | undefined> {
    let granted: Granted[] = [];
    let asksForLess = false;
    this.#claims.set(claim, 0);
    this.#asking = true;
    try {
      granted = await this.#queue.own(claim, !this.#options.untilIdle && !this.#asks.searching);
      this.#claimedAt = Date.now();
      this.#asks.answered();
    } catch (error) {
      asksForLess = cannotBeSent(error);
      if (asksForLess) this.#asks.forLess(claim, error);
      else if (!this.#stopping) this.#fail(error);
    }
    // In one go: a stop must find a claim under way, or what it has brought in hand.
    this.#asking = false;
    this.#claims.delete(claim);
    this.#begin(granted);
    return asksForLess ? undefined : granted.length;
  }

  #free(): number {
    // The handler of a late one has ended: it leaves its slot, but the late ones do not become more and more.
    const late = [...this.#hand].filter((performance) => performance.late).length;
    let free = this.#concurrency + (this.#options.prefetch ?? 0) - this.#hand.size + Math.min(late, this.#concurrency);
    for (const [claim, leaving] of this.#claims) free -= Math.max(claim.max - leaving, 0);
    return free;
  }

  #claim(max: number): Claim {
    return this.#asks.claim(this.#stopping || this.#failure ? 0 : max, this.#leases.shortest);
  }

  // --- performing ----------------------------------------------------------------------------------------------------

  #begin(granted: Granted[]): void {
    const begun = granted.map((row) => {
      const performance = new Performance(row, this.#environment.calls);
      this.#hand.add(performance);
      this.#leases.granted(performance, row.deadline);
      return performance;
    });
    // A claim has one lease for all actions, the shortest. A task with a longer one gets it before its handler begins.
    const longer = begun.filter((performance) => this.#leases.of(performance) !== this.#leases.shortest);
    const extended = longer.length > 0 ? this.#leases.extend(longer) : undefined;
    for (const performance of begun) {
      const registered = this.#actions.get(performance.task.action) as Registered;
      const own = longer.includes(performance) ? extended : undefined;
      this.#places.add({ performance, registered, extended: own });
    }
    if (granted.length > 0 && !this.#queue.hears) this.hear();
    if ((this.#stopping && !this.#asking) || this.#failure) this.#places.clear();
    this.#places.fill();
  }

  /** A performance ends once: with its handler, or before it when it is given back. */
  #end(performance: Performance, said: Said): void {
    if (performance.ended) return;
    performance.end(said);
    this.#ended.push(performance);
    this.#returning ??= this.#returnAll().catch((error) => this.#fail(error));
  }

  // --- returning -----------------------------------------------------------------------------------------------------

  /** What has ended since the last call goes back with the next, which brings others in its place. */
  async #returnAll(): Promise<void> {
    while (this.#ended.length > 0) {
      // What ends in the same turn of the event loop goes along.
      await new Promise(setImmediate);
      await this.#returns.send(this.#takeEnded());
    }
    this.#returning = undefined;
  }

  /** As much as one message takes. */
  #takeEnded(): Performance[] {
    let size = 0;
    const over = this.#ended.findIndex(({ text }) => {
      size += text?.length ?? 0;
      return size > LARGEST_BATCH;
    });
    return this.#ended.splice(0, over === -1 ? this.#ended.length : Math.max(over, 1));
  }

  #returnerOf(): Returner {
    return {
      claim: (leaving) => {
        const claim = this.#claim(leaving.length);
        this.#claims.set(claim, leaving.length);
        return claim;
      },
      claimed: (claim) => void this.#claims.delete(claim),
      returned: (performances, granted) => {
        for (const performance of performances) this.#hand.delete(performance);
        const failed = performances.filter(({ failure }) => failure);
        if (failed.length > 0) this.#telling = this.#telling.then(() => tellFailures(this.#queue, this.#log, failed));
        if (granted) this.#claimedAt = Date.now();
        this.#begin(granted ?? []);
        if (this.#over && !this.holds) void this.giveUp();
        this.#tell();
      },
      fail: (error) => this.#fail(error),
    };
  }

  #hostOf(): Host {
    return {
      begins: () => !this.#stopping && !this.#failure,
      grace: () => this.#grace,
      end: (performance, said) => this.#end(performance, said),
      drop: (performance) => {
        this.#hand.delete(performance);
        this.#tell();
      },
      fail: (error) => this.#fail(error),
    };
  }

  // --- stopping ------------------------------------------------------------------------------------------------------

  /** The grace is over: what still runs is told, and then given back, which uses up no try. */
  async #giveBack(): Promise<void> {
    for (const performance of this.#hand) performance.task.abort(new WorkerStopped("the worker stops"));
    await sleep(LAST_MOMENT);
    for (const performance of this.#hand) {
      if (performance.ended) continue;
      if (!performance.task.wasCompleted) this.#end(performance, performance.givenBack());
      else {
        // Locked, if the handler's transaction is still open: the others do not wait for it.
        performance.end(performance.givenBack());
        void this.#returns.late(performance);
      }
    }
  }

  /** An error that no repetition mends, such as of the role's rights, ends the worker. */
  #fail(error: unknown): void {
    this.#failure ??= { error };
    for (const performance of this.#hand) performance.task.abort(new WorkerStopped("the worker has failed"));
    this.#queue.claimNoMore(PATIENCE);
    this.#tell();
  }

  /** Wakes what awaits a change: a task was returned, or the worker is to stop. */
  #tell(): void {
    this.#changed();
    this.#change = new Promise((resolve) => {
      this.#changed = resolve;
    });
  }
}
