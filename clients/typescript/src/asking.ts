import { describe } from "./errors.js";
import type { Registered } from "./handlers.js";
import type { Claim } from "./queue.js";
import type { Logger } from "./types.js";

/** How long an action is not asked for, a task of which cannot be sent. */
const LEFT_OUT = 30_000;

/** What claims ask for: all actions, unless something that would be granted cannot be sent. */
export class Asking {
  readonly #actions: Map<string, Registered>;
  readonly #log: Logger;
  readonly #changed: () => void;
  /** The most that a claim asks for. */
  #largest = Number.POSITIVE_INFINITY;
  /** Actions that are claimed one by one, and those that are not, with the time until when. */
  #suspects: string[] = [];
  #searching = false;
  readonly #leftOut = new Map<string, number>();

  /** `changed` is called when an action is asked for again. */
  constructor(actions: Map<string, Registered>, log: Logger, changed: () => void) {
    this.#actions = actions;
    this.#log = log;
    this.#changed = changed;
  }

  /** A claim of at most so many tasks. */
  claim(max: number, lease: string): Claim {
    const asked = this.#asked();
    return {
      max: asked.length === 0 ? 0 : Math.max(Math.min(max, this.#largest), 0),
      actions: asked.map(({ action }) => action),
      lease,
      withResults: asked.some(({ results }) => results),
      withSteps: asked.some(({ steps }) => steps),
    };
  }

  /** Whether it is looked for the action that cannot be sent: then a claim does not sleep. */
  get searching(): boolean {
    return this.#searching;
  }

  /** A claim was answered. */
  answered(): void {
    this.#largest = Number.POSITIVE_INFINITY;
  }

  /** What was to be granted cannot be sent. The claims find out which action it is of, and leave that out for a while. */
  forLess({ max, actions }: Claim, error: unknown): void {
    if (max > 1) this.#largest = Math.floor(max / 2);
    else if (actions.length > 1) this.#suspects = [...actions];
    else {
      const [action] = actions as [string];
      this.#log.error(`${action}: a task of it cannot be sent, see the view taskq.tasks: ${describe(error)}`);
      this.#leftOut.set(action, Date.now() + LEFT_OUT);
      setTimeout(this.#changed, LEFT_OUT).unref();
    }
  }

  /** One by one while it is looked for the one that cannot be sent. */
  #asked(): Registered[] {
    for (const [action, until] of this.#leftOut) if (until <= Date.now()) this.#leftOut.delete(action);
    const suspect = this.#actions.get(this.#suspects.pop() ?? "");
    this.#searching = suspect !== undefined;
    const asked = suspect ? [suspect] : [...this.#actions.values()];
    return asked.filter(({ action }) => !this.#leftOut.has(action));
  }
}
