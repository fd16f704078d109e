import type { Json } from "./encode.js";
import { Aborted, TimedOut } from "./errors.js";
import type { Names } from "./names.js";
import type { Saved } from "./saved.js";
import type { Suspension } from "./suspension.js";
import type { DependencyResult, Duration } from "./types.js";

/** How a task has ended, as a wait saves it. */
type Ended = { task_id: string; result: unknown } | { task_id: string; aborted: string | null };

/** How a wait has ended, as it is saved: for what it waited for, in order; or with its time. */
type End = Ended[] | { timed_out: true } | null;

/** What is waited for. */
export interface Kind {
  /** Whether it saves which children it has inserted. */
  inserts?: true;
  /** Nothing but the time: that is what it waits for. */
  sleeps?: true;
  /** The ids of the tasks, if they are known. */
  known(step: string): string[] | undefined;
  /** What to suspend for. */
  elements(step: string): Json[] | Promise<Json[]>;
}

/** The waits of a workflow. */
export class Waiting {
  readonly #names: Names;
  readonly #saved: Saved;
  readonly #suspension: Suspension;
  readonly #results: Map<string, DependencyResult>;

  constructor(names: Names, saved: Saved, suspension: Suspension, results: DependencyResult[]) {
    this.#names = names;
    this.#saved = saved;
    this.#suspension = suspension;
    this.#results = new Map(results.map((row) => [row.taskId, row]));
  }

  /** The results of what was waited for, in order; or its error. */
  async results(
    name: string,
    options: { unique?: boolean; timeout?: Duration },
    kind: Kind,
    returnAborted = false,
  ): Promise<unknown[]> {
    const end = await this.#suspension.wait(name, (number) => this.#wait(name, number, options, kind));
    if (end === null) return [];
    if (!Array.isArray(end)) return this.#suspension.fail(new TimedOut(`"${name}" has timed out`));
    const results = end.map((each) => ("aborted" in each ? new Aborted(each.task_id, each.aborted) : each.result));
    const error = returnAborted ? undefined : results.find((each) => each instanceof Aborted);
    return error ? this.#suspension.fail(error as Aborted) : results;
  }

  /**
   * How a wait of any kind has ended. That is saved, so that history does not change: not by a later signal, and not because
   * a task it waited for is removed.
   */
  async #wait(
    name: string,
    number: number,
    { unique, timeout }: { unique?: boolean; timeout?: Duration },
    kind: Kind,
  ): Promise<End> {
    const saved = this.#saved;
    const busy = <T>(run: () => Promise<T>) => this.#suspension.busy(run);
    const { outer } = this.#suspension;
    // The suspension would wait for the step, and the step for what comes after the suspension.
    if (outer) throw new Error(`"${name}" waits within step "${outer.step}": wait before the step, or after it`);
    const step = this.#names.of(name, { unique });
    if (timeout !== undefined) this.#names.take(`${step}:until`);
    if (kind.inserts) this.#names.take(`${step}:tasks`);
    if (saved.has(step)) return saved.get(step) as End;
    const ended = this.#endsOf(kind.known(step));
    if (ended) return busy(() => saved.save(step, ended));
    const time = timeout === undefined ? undefined : await busy(() => saved.limit(`${step}:until`, timeout));
    if (time?.left === 0) return busy(() => this.#timeIsUp(step, kind, time.until));
    const elements = await busy(async () => kind.elements(step));
    if (elements.length === 0 && !kind.sleeps) return busy(() => saved.save(step, []));
    return this.#suspension.suspendFor({ number, dependsOn: elements, atMost: time?.left });
  }

  /** How tasks have ended, if all have. */
  #endsOf(ids: string[] | undefined): Ended[] | undefined {
    const ends = ids?.map((id) => endOf(this.#results.get(id)));
    return ends?.includes(undefined) ? undefined : (ends as Ended[] | undefined);
  }

  /** The time of a wait is over. What had ended by then counts, if nothing was suspended for it until then. */
  async #timeIsUp(step: string, kind: Kind, until: string): Promise<End> {
    if (kind.sleeps) return this.#saved.save(step, null);
    const ids = (await kind.elements(step)).map(({ id }) => String(id));
    const rows = ids.length > 0 ? await this.#saved.look(ids, until) : undefined;
    return this.#saved.save<End>(step, rows?.map((row) => endOf(row) as Ended) ?? { timed_out: true });
  }
}

function endOf(row: DependencyResult | undefined): Ended | undefined {
  if (row === undefined) return undefined;
  const { taskId: task_id, result, status: aborted } = row;
  return row.statusCode === "completed" ? { task_id, result } : { task_id, aborted };
}
