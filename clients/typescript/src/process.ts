import type { Logger } from "./types.js";
import type { Worker } from "./worker.js";

/** How many workers of this process, of whatever app, heed signals, and whether a handler of one was left behind. */
let working = 0;
let abandoned = false;

/**
 * SIGTERM and SIGINT stop the worker; a second one ends it at once. Either way the process ends with 0: by itself, or, if
 * a handler does not heed its signal, by `process.exit`, since its task was given back and is another worker's by then.
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
      abandoned ||= received > 0 && worker.abandoned;
      // What awaits the worker comes first. Until then another signal is for nothing, and does not end the process otherwise.
      if (abandoned && working === 0) setTimeout(() => process.exit(), 100);
      else process.off("SIGTERM", stop).off("SIGINT", stop);
    },
  };
}
