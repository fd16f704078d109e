import { performing } from "./environment.js";
import { describe } from "./errors.js";
import type { Logger } from "./types.js";
import type { Worker } from "./worker.js";

/** How many workers of this process, of whatever app, heed signals. */
let heeding = 0;
/** Those that work in this process. */
const working = new Set<{ worker: Worker; ended: Promise<unknown>; log: Logger }>();
/** So long what is in hand may take to go back, in milliseconds. */
const LAST = 3000;

/**
 * SIGTERM and SIGINT stop the worker; a second one ends it at once. The process ends then. Where a handler does not
 * heed its signal, it ends with 0 that many milliseconds after the last worker: the task is another worker's by then.
 */
export function stopOnSignals(worker: Worker, log: Logger): { end(): void } {
  let received = 0;
  heeding++;
  const stop = (signal: NodeJS.Signals) => {
    received++;
    log.info(received === 1 ? `${signal}: the worker stops` : `${signal}: the worker ends at once`);
    worker.stop(received > 1);
  };
  process.on("SIGTERM", stop).on("SIGINT", stop);
  return {
    end() {
      heeding--;
      process.off("SIGTERM", stop).off("SIGINT", stop);
      const { abandoned, exitAfter } = worker;
      if (received === 0 || !abandoned || exitAfter === undefined) return;
      const exit = () => (heeding === 0 ? process.exit(0) : setTimeout(exit, exitAfter).unref());
      setTimeout(exit, exitAfter).unref();
    },
  };
}

/** While a worker works, an error that ends the process gives back what it has in hand. */
export function giveBackInCrash(worker: Worker, log: Logger, ended: Promise<unknown>): { end(): void } {
  const own = { worker, log, ended };
  if (working.size === 0) process.on("uncaughtException", crash);
  working.add(own);
  return {
    end() {
      // When it crashes, what is thrown in the end is to end the process.
      if (worker.crashed) return;
      working.delete(own);
      if (working.size === 0) process.off("uncaughtException", crash);
    },
  };
}

/** A rejection that nothing handles comes here as well, where it ends the process. */
function crash(error: unknown): void {
  // What else listens decides whether the process goes on.
  if (process.listenerCount("uncaughtException") > 1) return;
  const culprit = performing.getStore();
  const workers = [...working];
  // A second error of this process changes nothing.
  if (workers.some(({ worker }) => worker.crashed)) return;
  for (const { worker, log } of workers) {
    const whose = culprit ? ` in ${culprit.action} "${culprit.id}"` : "";
    log.error(`the process ends by an error${whose}, what is in hand goes back: ${describe(error)}`);
    worker.crash(error, culprit);
  }
  const late = new Promise((resolve) => setTimeout(resolve, LAST));
  void Promise.race([late, Promise.allSettled(workers.map(({ ended }) => ended))]).then(() => {
    process.off("uncaughtException", crash);
    // As though it had not been caught.
    setImmediate(() => {
      throw error;
    });
  });
}
