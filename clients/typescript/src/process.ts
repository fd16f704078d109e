import type { Logger } from "./types.js";
import type { Worker } from "./worker.js";

/** How many workers of this process, of whatever app, heed signals. */
let working = 0;

/**
 * SIGTERM and SIGINT stop the worker; a second one ends it at once. The process ends then. Where a handler does not
 * heed its signal, it ends with 0 that many milliseconds after the last worker: the task is another worker's by then.
 */
export function stopOnSignals(worker: Worker, log: Logger): { end(): void } {
  let received = 0;
  working++;
  const stop = (signal: NodeJS.Signals) => {
    received++;
    log.info(received === 1 ? `${signal}: the worker stops` : `${signal}: the worker ends at once`);
    worker.stop(received > 1);
  };
  process.on("SIGTERM", stop).on("SIGINT", stop);
  return {
    end() {
      working--;
      process.off("SIGTERM", stop).off("SIGINT", stop);
      const { abandoned, exitAfter } = worker;
      if (received === 0 || !abandoned || exitAfter === undefined) return;
      const exit = () => (working === 0 ? process.exit(0) : setTimeout(exit, exitAfter).unref());
      setTimeout(exit, exitAfter).unref();
    },
  };
}
