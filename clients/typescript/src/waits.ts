import type { Calls } from "./calls.js";
import { forTimer, inMilliseconds } from "./encode.js";
import { TimedOut } from "./errors.js";
import { LONGEST_SLEEP } from "./queue.js";
import type { Settled } from "./types.js";

/** How long the connection sleeps for one task before it looks at all of them, in milliseconds. */
const SLICE = 50;
/** Looks at very many tasks take their time. So much longer than the last one is the sleep at least. */
const REST = 10;

/** A call that waits. */
interface Waiting {
  id: string;
  resolve(settled: Settled<any>): void;
  reject(error: unknown): void;
  timer: NodeJS.Timeout;
}

const LENGTH = "SELECT (1000 * extract(epoch FROM $1::interval))::bigint AS length";
const LOOK = `SELECT id, status_code, status, result, ${inMilliseconds("settled_at")} AS settled_at
                FROM taskq.tasks WHERE id = ANY ($1)`;
const SLEEP = `SELECT FROM taskq.wait_for_task($1, least($2::interval, ${LONGEST_SLEEP}))`;

/** Waits for the ends of tasks, of however many calls, over one connection at a time. */
export class Waits {
  readonly #calls: Calls;
  readonly #waiting = new Set<Waiting>();
  #looking = false;
  readonly #lengths = new Map<string, Promise<number>>();

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** How a task has ended; throws `TimedOut` after that time. */
  async wait(id: string, timeout: string): Promise<Settled<any>> {
    const milliseconds = await this.#length(timeout);
    return new Promise((resolve, reject) => {
      const end = () => {
        this.#waiting.delete(waiting);
        reject(new TimedOut(`task "${id}" has not settled in ${timeout}`));
      };
      const waiting = { id, resolve, reject, timer: setTimeout(end, forTimer(milliseconds)) };
      this.#waiting.add(waiting);
      if (!this.#looking) void this.#lookUntilNone();
    });
  }

  /** In milliseconds, as the server reads it. It is asked once for each text. */
  #length(timeout: string): Promise<number> {
    const known =
      this.#lengths.get(timeout) ?? this.#calls.call(LENGTH, [timeout]).then(([row]) => row.length as number);
    this.#lengths.set(timeout, known);
    known.catch(() => this.#lengths.delete(timeout));
    return known;
  }

  /** Fails what waits. */
  close(): void {
    this.#end([...this.#waiting], ({ reject }) => reject(new Error("the app was closed")));
  }

  async #lookUntilNone(): Promise<void> {
    this.#looking = true;
    let sleep = SLICE;
    while (this.#waiting.size > 0) {
      const waiting = [...this.#waiting];
      const [first] = waiting as [Waiting];
      try {
        // One that is gone ends its calls when it is looked for.
        await this.#calls.call(SLEEP, [first.id, `${sleep} milliseconds`]).catch((error) => {
          if (!isGone(error)) throw error;
        });
        const begun = performance.now();
        await this.#look(waiting);
        sleep = Math.max(SLICE, REST * (performance.now() - begun));
      } catch (error) {
        this.#end(waiting, ({ reject }) => reject(error));
      }
    }
    this.#looking = false;
  }

  async #look(waiting: Waiting[]): Promise<void> {
    const ids = [...new Set(waiting.map(({ id }) => id))];
    const rows = new Map((await this.#calls.call(LOOK, [ids])).map((row) => [row.id, row]));
    for (const each of waiting) {
      const row = rows.get(each.id);
      if (row === undefined) this.#end([each], ({ id, reject }) => reject(unknown(id)));
      else if (row.settled_at !== null) this.#end([each], ({ resolve }) => resolve(settledOf(row)));
    }
  }

  #end(waiting: Waiting[], how: (one: Waiting) => void): void {
    for (const each of waiting) {
      clearTimeout(each.timer);
      if (this.#waiting.delete(each)) how(each);
    }
  }
}

function settledOf({ id, status_code, status, result, settled_at }: any): Settled<any> {
  return { taskId: id, statusCode: status_code, status, result, settledAt: new Date(settled_at) };
}

/** As the queue says it. */
function unknown(id: string): Error {
  return Object.assign(new Error(`there is no task "${id}"`), { code: "TQ003" });
}

function isGone(error: unknown): boolean {
  return (error as { code?: unknown })?.code === "TQ003";
}
