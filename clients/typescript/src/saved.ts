import { createHash } from "node:crypto";
import type { Calls } from "./calls.js";
import { interval } from "./durations.js";
import { encodeTask, toJson } from "./encode.js";
import { sqlState } from "./errors.js";
import { runOn } from "./queryable.js";
import { stored, type Task } from "./task.js";
import type { DependencyResult, Duration, NewTask, Queryable, TaskOptions } from "./types.js";

/** One statement: it may have been committed although its answer got lost, and finds what it has inserted by the step then. */
const INSERT = `SELECT taskq.save_step($1, $2, $3, (
         SELECT coalesce(jsonb_agg(id ORDER BY n), '[]') FROM taskq.insert_tasks($4::jsonb) WITH ORDINALITY AS inserted (id, n))) AS saved`;

/** What a workflow has saved, and saves. */
export class Saved {
  readonly #task: Task;
  readonly #calls: Calls;
  readonly #steps: Map<string, unknown>;

  constructor(task: Task, calls: Calls) {
    this.#task = task;
    this.#calls = calls;
    this.#steps = new Map(Object.entries(task.steps));
  }

  /** Whether a step was saved before this run. */
  has(step: string): boolean {
    return this.#steps.has(step);
  }

  /** What it has saved. */
  get(step: string): unknown {
    return this.#steps.get(step);
  }

  /** Saves a step, and gives what is kept: what was saved first, as JSON has it. */
  async save<T>(step: string, result: T, client?: Queryable): Promise<T> {
    const query = "SELECT taskq.save_step($1::text, $2::text::uuid, $3::text, $4::text::jsonb)::text AS saved";
    const values = [this.#task.id, this.#task.token, step, toJson(result) ?? null];
    const call = client ? runOn(client, query, values) : this.#calls.call(query, values);
    const [row] = await stored(`result of step "${step}"`, this.#task.held(call));
    // Read here, and not by a driver: on the application's connection that may have another parser.
    return JSON.parse(row.saved);
  }

  /** A time that began when this was asked first, and the seconds that are left of it, by the queue's clock. */
  async limit(step: string, duration: Duration): Promise<{ left: number; until: string }> {
    const [{ left, until }] = await this.#call(
      `SELECT ceil(1000 * greatest(extract(epoch FROM until::timestamptz - taskq.clock()), 0))::bigint AS left, until
         FROM (SELECT taskq.save_step($1, $2, $3, to_jsonb(taskq.clock() + $4::interval)) #>> '{}' AS until) AS saved`,
      [this.#task.id, this.#task.token, step, interval(duration)],
    );
    return { left: left / 1000, until };
  }

  /**
   * Inserts the children of a step and saves which they are, in one statement. An earlier run of the workflow, before it was
   * rewound, may have children of the same ids: then those of this run end in what is this performance's own.
   */
  async insert(
    step: string,
    bodies: unknown[],
    keys: TaskOptions & Pick<NewTask, "action">,
    check: (tasks: NewTask[]) => Promise<void>,
  ): Promise<string[]> {
    const { id, token } = this.#task;
    const own = createHash("sha256").update(token).digest("hex").slice(0, 8);
    const tasks = `${step}:tasks`;
    for (const end of ["", `/x${own}`]) {
      const children = bodies.map((body, n) => ({ ...keys, id: `${id}/${step}/${n}${end}`, body }));
      await check(children);
      try {
        const text = toJson(children.map(encodeTask), "children");
        const [row] = await this.#call(INSERT, [id, token, tasks, text]);
        return row.saved;
      } catch (error) {
        if (sqlState(error) !== "TQ002" || end) throw error;
        // Those of this run, if the answer of the same statement got lost.
        const saved = "SELECT result FROM taskq.steps WHERE task_id = $1 AND step = $2";
        const [row] = await this.#call(saved, [id, tasks]);
        if (row) return row.result;
      }
    }
    throw new Error("unreachable");
  }

  /** How tasks had ended by that time, if all had. */
  async look(ids: string[], until: string): Promise<DependencyResult[] | undefined> {
    try {
      const rows = await this.#calls.call(
        `SELECT id AS "taskId", '' AS action, status_code AS "statusCode", status, result
           FROM unnest($1::text[]) WITH ORDINALITY AS each (id, n), taskq.wait_for_task(id, '0')
          WHERE settled_at <= $2::timestamptz ORDER BY n`,
        [ids, until],
      );
      return rows.length === ids.length ? rows : undefined;
    } catch (error) {
      // There is no such task.
      if (sqlState(error)?.startsWith("TQ")) return undefined;
      throw error;
    }
  }

  #call(text: string, values: unknown[]): Promise<any[]> {
    return this.#task.held(this.#calls.call(text, values));
  }
}
