import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "pg";
import { destroy } from "./connection.js";
import { forTimer } from "./encode.js";

/** Until when statements are sent, and waited for. Links that are to end together have the same terms. */
export class Terms {
  /** What connects for a statement of these terms, and what has sent one that is not answered yet. */
  readonly connecting = new Set<Client>();
  readonly running = new Set<Client>();
  #giveUpAt = Number.POSITIVE_INFINITY;
  #cutting: NodeJS.Timeout | undefined;
  #pause = pausing();

  /** How long statements are still sent, in milliseconds. */
  get left(): number {
    return this.#giveUpAt - Date.now();
  }

  /** Throws when no statement is sent any more. */
  demand(): void {
    if (this.left <= 0) throw new Error("no connection is used any more");
  }

  /**
   * From then on (`Date.now()`) no statement is sent any more. A call that pauses is repeated at once, if there is time. What is
   * under way at the time of the cut fails then: neither a lock nor a server that does not answer holds up the end.
   */
  giveUpAt(time: number, cutAt = time): void {
    this.#giveUpAt = time;
    clearTimeout(this.#cutting);
    this.#cutting = setTimeout(
      () => {
        for (const client of [...this.running, ...this.connecting]) destroy(client);
      },
      forTimer(cutAt - Date.now()),
    ).unref();
    // It would connect for nothing.
    if (this.left <= 0) for (const client of this.connecting) destroy(client);
    this.#pause.abort();
    this.#pause = pausing();
  }

  /** Waits before another attempt. What is left at the end is for attempts as well, each with time for an answer. */
  async pause(milliseconds: number): Promise<void> {
    const pause = Math.min(milliseconds, this.left / 2);
    await sleep(pause, undefined, { signal: this.#pause.signal }).catch(() => {});
  }
}

/** What ends pauses, of however many calls. */
function pausing(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}
