import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { watch } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** What dies sooner than this after its beginning is begun anew only then, in milliseconds. */
const SHORTEST_LIFE = 1000;

/**
 * Runs programs of Node until SIGTERM or SIGINT, which they get as well; one that dies is begun anew. With `ends` one that ends
 * with 0 stays so. With `reload` all are begun anew when a file of that folder has changed.
 */
export async function supervise(
  commands: string[][],
  { ends = false, reload }: { ends?: boolean; reload?: string },
): Promise<void> {
  const children = new Set<ChildProcess>();
  let stopping = false;
  const stop = () => {
    stopping = true;
    for (const child of children) child.kill("SIGTERM");
  };
  process.on("SIGTERM", stop).on("SIGINT", stop);
  let changed = false;
  const watching =
    reload === undefined
      ? undefined
      : watch(reload, { recursive: true }, (_, file) => {
          if (changed || file === null || !/^(?!.*(node_modules|\/\.|^\.)).*\.[cm]?[jt]sx?$/.test(file)) return;
          // What changes before they begin anew is read by them then.
          changed = true;
          console.error("taskq: the code has changed");
          for (const child of children) child.kill("SIGTERM");
        });
  const keep = async (command: string[], n: number) => {
    while (!stopping) {
      const begun = Date.now();
      const child = spawn(process.execPath, [...process.execArgv, ...command], { stdio: "inherit" });
      children.add(child);
      changed = false;
      const [code, signal] = await once(child, "exit");
      children.delete(child);
      if (stopping || (ends && code === 0)) {
        process.exitCode ||= code ?? 1;
        return;
      }
      if (!changed)
        console.error(
          `taskq: process ${n + 1} of ${commands.length} has ended with ${code ?? signal}, and is begun anew`,
        );
      await sleep(begun + SHORTEST_LIFE - Date.now());
    }
  };
  await Promise.all(commands.map(keep));
  watching?.close();
  process.off("SIGTERM", stop).off("SIGINT", stop);
}
