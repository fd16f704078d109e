import { setTimeout as sleep } from "node:timers/promises";
import { forTimer } from "./encode.js";
import type { Environment } from "./environment.js";
import { describe, guarded, Lost, WorkerStopped, withStack } from "./errors.js";
import { cannotBeSent, isPassing } from "./failures.js";
import type { Registered } from "./handlers.js";
import { Leases } from "./leases.js";
import { Performance, type Said } from "./performance.js";
import type { Claim, Granted, Outcome, Queue } from "./queue.js";
import { type Returner, Returns } from "./returns.js";
import type { Task } from "./task.js";
import type { Logger, WorkOptions } from "./types.js";

/** How long a claim sleeps in the server. A sleeping statement holds a snapshot, so it is not for longer. */
const WAIT = "10 seconds";
/** How long handlers have to end when their signal was aborted because the worker stops. */
const LAST_MOMENT = 500;
/** How long a stopping worker tries to reach a server that does not answer, beyond the grace. */
const PATIENCE = 5000;
/** The same at the second signal, the last moment of the handlers included. */
const HURRY = 2000;
/** So many characters of results go into one call; a larger one goes alone. */
const LARGEST_BATCH = 16_000_000;
/** How long an action is not asked for, a task of which cannot be sent. */
const LEFT_OUT = 30_000;
/** When a task may come back that was granted while an earlier try of it still runs here. */
const STILL_RUNS = "1 second";
/** The same of a task whose steps or results could not be read. */
const UNREAD = "10 seconds";

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
  /** The most that a claim asks for, since more could not be sent. */
  #largest = Number.POSITIVE_INFINITY;
  /** Actions that are claimed one by one, and those that are not, with the time until when. */
  #suspects: string[] = [];
  #searching = false;
  readonly #leftOut = new Map<string, number>();
  /** Claims under way, and what leaves the hand with the same call. */
  readonly #claims = new Map<Claim, Performance[]>();
  readonly #leases: Leases;
  readonly #returns: Returns;
  /** What waits for its turn, and what it waits for besides: its own lease. */
  #prefetched: { performance: Performance; extended: Promise<void> | undefined }[] = [];
  /** Handlers that have a place, and with them those that have lost it and still run. */
  #running = 0;
  #performing = 0;
  #ended: Performance[] = [];
  #returning: Promise<void> | undefined;
  /** What is said of tries that have failed. */
  #telling: Promise<void> = Promise.resolve();
  #stopping = false;
  /** Whether a claim is under way that may sleep. */
  #asking = false;
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
  #abandoned = false;

  constructor(
    queue: Queue,
    environment: Environment,
    actions: Registered[],
    options: WorkOptions,
    log: Logger,
  ) {
    this.#queue = queue;
    this.#environment = environment;
    this.#actions = new Map(actions.map((registered) => [registered.action, registered]));
    this.#options = options;
    this.#concurrency = options.concurrency ?? 10;
    this.#log = log;
    this.#leases = new Leases(queue, this.#actions, this.#hand, log);
    this.#returns = new Returns(queue, log, this.#returnerOf());
    this.#tell();
  }

  /** Works until it is stopped, or idle if that was asked for. */
  async run(): Promise<void> {
    try {
      const { grace = "30 seconds", exitAfter } = this.#options;
      const read = await this.#leases.read(exitAfter === undefined ? [grace] : [grace, exitAfter]);
      [this.#grace, this.exitAfter] = read as [number, number?];
      this.#leases.beat();
      this.#log.info(`${this.#queue.actor} performs tasks of ${[...this.#actions.keys()].join(", ")}`);
      await this.#claimAll();
      while (this.#hand.size > 0 && !this.#failure) await this.#change;
      await this.#telling;
    } catch (error) {
      this.#fail(error);
    } finally {
      clearTimeout(this.#graceOver);
      this.#leases.end();
      // A heartbeat may be under way, and get no answer for long.
      if (!this.holds) this.giveUp();
      this.#over = true;
      await this.#queue.close();
      this.#abandoned = this.#performing > 0;
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
  async hear(): Promise<void> {
    await this.#leases.hear();
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
    if (!this.#asking) this.#returnPrefetched();
    this.#tell();
  }

  /** Whether there is something in hand: once it has failed, that is still returned. */
  get holds(): boolean {
    return this.#hand.size > 0;
  }

  /** Says nothing more, and cuts what it says. */
  giveUp(): void {
    this.#queue.stop(Date.now(), 0);
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
    this.#claims.set(claim, []);
    this.#asking = true;
    try {
      const sleeps = !this.#options.untilIdle && !this.#searching;
      granted = await this.#queue.own(claim, sleeps ? WAIT : null);
      this.#largest = Number.POSITIVE_INFINITY;
    } catch (error) {
      asksForLess = cannotBeSent(error);
      if (asksForLess) this.#askForLess(claim, error);
      else if (!this.#stopping) this.#fail(error);
    }
    // In one go: a stop must find a claim under way, or what it has brought in hand.
    this.#asking = false;
    this.#claims.delete(claim);
    this.#begin(granted);
    return asksForLess ? undefined : granted.length;
  }

  /** Something that is granted cannot be sent. The claims find out which action it is of, and leave that out for a while. */
  #askForLess({ max, actions }: Claim, error: unknown): void {
    if (max > 1) this.#largest = Math.floor(max / 2);
    else if (actions.length > 1) this.#suspects = [...actions];
    else {
      const [action] = actions as [string];
      this.#log.error(`${action}: a task of it cannot be sent, see the view taskq.tasks: ${describe(error)}`);
      this.#leftOut.set(action, Date.now() + LEFT_OUT);
      setTimeout(() => this.#tell(), LEFT_OUT).unref();
    }
  }

  /** The actions to claim: one by one while it is looked for the one that cannot be sent. */
  #asked(): Registered[] {
    for (const [action, until] of this.#leftOut) if (until <= Date.now()) this.#leftOut.delete(action);
    const suspect = this.#actions.get(this.#suspects.pop() ?? "");
    this.#searching = suspect !== undefined;
    const asked = suspect ? [suspect] : [...this.#actions.values()];
    return asked.filter(({ action }) => !this.#leftOut.has(action));
  }

  #free(): number {
    // The handler of a late one has ended: it leaves its slot, but the late ones do not become more and more.
    const late = [...this.#hand].filter((performance) => performance.late).length;
    let free =
      this.#concurrency + (this.#options.prefetch ?? 0) - this.#hand.size + Math.min(late, this.#concurrency);
    for (const [claim, leaving] of this.#claims) free -= Math.max(claim.max - leaving.length, 0);
    return free;
  }

  /** A claim of at most so many tasks, of the actions that have room. `leaving` are in hand, but not for long. */
  #claim(max: number, leaving: Performance[] = []): Claim {
    const claim = {
      max: this.#stopping || this.#failure ? 0 : Math.min(max, this.#largest),
      actions: [] as string[],
      lease: this.#leases.shortest,
      withResults: false,
      withSteps: false,
    };
    for (const registered of this.#asked()) {
      const room = this.#room(registered, leaving);
      if (room <= 0) continue;
      // No claim can be limited per action, so the least room there is limits it as a whole.
      claim.max = Math.min(claim.max, room);
      claim.actions.push(registered.action);
      claim.withResults ||= registered.results;
      claim.withSteps ||= registered.steps;
    }
    if (claim.actions.length === 0) claim.max = 0;
    return claim;
  }

  /** How many more tasks of an action may be in hand, whatever the claims under way bring. */
  #room({ action, maxConcurrency }: Registered, leaving: Performance[]): number {
    if (!Number.isFinite(maxConcurrency)) return maxConcurrency;
    const count = (performances: Iterable<Performance>) =>
      [...performances].filter(({ task, late }) => task.action === action && !late).length;
    let room = maxConcurrency - count(this.#hand) + count(leaving);
    for (const [claim, theirs] of this.#claims) {
      if (claim.actions.includes(action)) room -= Math.max(claim.max - count(theirs), 0);
    }
    return room;
  }

  /** A sleeping claim that leaves out an action which has room by now would not hear of its tasks. */
  #wakeForRoom(): void {
    const registered = [...this.#actions.values()];
    for (const { actions } of this.#claims.keys()) {
      const missed = registered.some((each) => !actions.includes(each.action) && this.#room(each, []) > 0);
      if (missed) void this.#queue.wake();
    }
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
      this.#prefetched.push({ performance, extended: longer.includes(performance) ? extended : undefined });
    }
    if ((this.#stopping && !this.#asking) || this.#failure) this.#returnPrefetched();
    this.#performNext();
  }

  /** Begins what waits for its turn while there are slots. */
  #performNext(): void {
    while (!this.#stopping && !this.#failure && this.#running < this.#concurrency) {
      const next = this.#prefetched.shift();
      if (!next) return;
      const { performance, extended } = next;
      if (performance.task.lost) this.#end(performance, {});
      else if (performance.isShortOfTime)
        this.#end(performance, performance.givenBack("given back: too little of its max_run_time was left"));
      // An earlier try runs on here after its end: the next one begins when that has ended, here or elsewhere.
      else if (this.#environment.running.has(performance.task.id))
        this.#end(performance, performance.givenBack("given back: an earlier try still runs", STILL_RUNS));
      else this.#start(performance, extended);
    }
  }

  #start(performance: Performance, extended: Promise<void> | undefined): void {
    const { task } = performance;
    let grace: NodeJS.Timeout | undefined;
    let inPlace = true;
    const leave = () => {
      clearTimeout(grace);
      if (inPlace) this.#running--;
      inPlace = false;
      this.#performNext();
    };
    // A handler that does not heed its signal keeps its place for the grace.
    task.onAbort = () => {
      if (!task.lost) return;
      grace = setTimeout(() => {
        this.#hand.delete(performance);
        leave();
        this.#tell();
      }, forTimer(this.#grace));
      grace.unref();
    };
    this.#environment.running.add(task.id);
    this.#running++;
    this.#performing++;
    this.#perform(performance, extended)
      .finally(() => {
        this.#environment.running.delete(task.id);
        this.#performing--;
        leave();
      })
      .catch((error) => this.#fail(error));
  }

  /** A worker that stops begins nothing: what waits for its turn goes back, as though it had not been claimed. */
  #returnPrefetched(): void {
    for (const { performance } of this.#prefetched.splice(0)) {
      this.#end(performance, performance.givenBack());
    }
  }

  async #perform(performance: Performance, extended: Promise<void> | undefined): Promise<void> {
    if (extended) {
      await extended;
      if (performance.ended) return;
      // A worker that has been stopped meanwhile begins nothing.
      if (performance.task.lost || this.#stopping || this.#failure)
        return this.#end(performance, performance.task.lost ? {} : performance.givenBack());
    }
    const registered = this.#actions.get(performance.task.action) as Registered;
    const unread = await performance.complete(registered, this.#queue).catch((error) => ({ error }));
    if (unread) {
      const status = `given back: its steps or results could not be read: ${describe(unread.error)}`;
      return this.#end(performance, performance.givenBack(status, UNREAD));
    }
    const ending = await performance.run(registered, this.#environment);
    const { error } = ending;
    // The refusal of the return tells of one that is lost.
    const lost = guarded(() => error instanceof Lost, false);
    if ("error" in ending && !performance.task.aborted && !lost) {
      performance.failure = { error };
      this.#report(error, performance.task);
    }
    const { action, id, numTries } = performance.task;
    const how = "error" in ending ? "failed" : (ending.outcome?.status_code ?? "completed");
    this.#log.debug?.(`${action} "${id}": try ${numTries} ${how}`, { action, taskId: id, numTries });
    this.#end(performance, ending);
  }

  /** What `onError` throws must not end the worker. */
  #report(error: unknown, task: Task): void {
    const failed = (reason: unknown) => this.#log.error(`onError: ${describe(reason)}`);
    try {
      // It may be a function that returns a promise.
      Promise.resolve(this.#options.onError?.(error, task)).catch(failed);
    } catch (reason) {
      failed(reason);
    }
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

  /** A line for each try that has failed: which, whether another one comes, and when. */
  async #tellFailures(failed: Performance[]): Promise<void> {
    const ids = failed.map(({ task }) => task.id);
    const outcomes = await this.#queue.outcomes(ids).catch(() => []);
    for (const { task, failure } of failed) {
      const { action, id, numTries } = task;
      const outcome = outcomes.find((row) => row.id === id);
      const [how, aborted] = told(outcome, numTries);
      const fields = { action, taskId: id, numTries, error: failure?.error };
      this.#log[aborted ? "error" : "warn"](
        `${action} "${id}": ${how}: ${withStack(failure?.error)}`,
        fields,
      );
    }
  }

  #returnerOf(): Returner {
    return {
      claim: (leaving) => {
        const claim = this.#claim(leaving.length, leaving);
        this.#claims.set(claim, leaving);
        return claim;
      },
      claimed: (claim) => void this.#claims.delete(claim),
      returned: (performances, granted = []) => {
        for (const performance of performances) this.#hand.delete(performance);
        const failed = performances.filter(({ failure }) => failure);
        if (failed.length > 0) this.#telling = this.#telling.then(() => this.#tellFailures(failed));
        this.#begin(granted);
        this.#wakeForRoom();
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

/** What the log says of a failed try, and whether the task has aborted by it. */
function told(outcome: Outcome | undefined, numTries: number): [string, boolean] {
  // Another call may have taken it away meanwhile.
  if (!outcome) return [`try ${numTries} failed`, false];
  const { state, max_tries, next_at } = outcome;
  const which = `try ${numTries}${max_tries === null ? "" : ` of ${max_tries}`} failed`;
  if (state === "aborted") return [`${which}, and there is no other`, true];
  if (state !== "scheduled" || next_at === null) return [which, false];
  return [`${which}, the next one is at ${new Date(next_at).toISOString()}`, false];
}
