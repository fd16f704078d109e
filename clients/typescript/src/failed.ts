import { withStack } from "./errors.js";
import type { Performance } from "./performance.js";
import type { Outcome, Queue } from "./queue.js";
import type { Logger } from "./types.js";

/** A line for each try that has failed: which, whether another one comes, and when. */
export async function tellFailures(queue: Queue, log: Logger, failed: Performance[]): Promise<void> {
  const outcomes = await queue.outcomes(failed.map(({ task }) => task.id)).catch(() => []);
  for (const { task, failure } of failed) {
    const { action, id, numTries } = task;
    const [how, aborted] = told(
      outcomes.find((row) => row.id === id),
      numTries,
    );
    const fields = { action, taskId: id, numTries, error: failure?.error };
    log[aborted ? "error" : "warn"](`${action} "${id}": ${how}: ${withStack(failure?.error)}`, fields);
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
