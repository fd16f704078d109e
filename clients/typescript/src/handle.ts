import type { Operators } from "./operators.js";
import type { Duration, InsertCall, Named, Queryable, Settled, TaskOptions } from "./types.js";

/** What a handle asks of the app. */
interface Asked extends Operators {
  wait(id: string, options?: { timeout?: Duration }): Promise<Settled<any>>;
}

/** What an insertion gives: the id of the task that does the work, which is taken wherever an id is, and the calls about it. */
export class Handle<Result = unknown> {
  readonly id: string;
  /** False: another task was there, which keeps this one out by its id or its unique key. */
  readonly inserted: boolean;
  readonly #app: Asked;

  /** @internal */
  constructor(id: string, inserted: boolean, app: Asked) {
    this.id = id;
    this.inserted = inserted;
    this.#app = app;
  }

  /** Waits until the task has settled, and tells how; throws `TimedOut` if the time is up first (10 seconds). */
  wait(options: { timeout?: Duration } = {}): Promise<Settled<Result>> {
    return this.#app.wait(this.id, options);
  }

  /** Its state, as `taskq.tasks` has it; `null` if it is gone. */
  async state(options: { client?: Queryable } = {}): Promise<string | null> {
    return (await this.#app.get(this.id, options))?.state ?? null;
  }

  /** Aborts the task; whether it had not settled. */
  async cancel(options: { status?: string; client?: Queryable } = {}): Promise<boolean> {
    return (await this.#app.cancel(this.id, options)) > 0;
  }

  /** The id: in texts, in JSON, and as the parameter of a statement of pg. */
  toString(): string {
    return this.id;
  }

  toJSON(): string {
    return this.id;
  }

  toPostgres(): string {
    return this.id;
  }
}

/** A registered action, for insertion with the types of its handler. It can be given wherever an action is named. */
export interface Action<Body = any, Result = unknown> extends Named {
  insert(body: Body, options?: TaskOptions & InsertCall): Promise<Handle<Result>>;
  insertMany(bodies: Body[], options?: Omit<TaskOptions, "id"> & InsertCall): Promise<Handle<Result>[]>;
}
