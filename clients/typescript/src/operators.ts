import { arrayOf, settingCall, settingsOf } from "./encode.js";
import type { ActionSettings, GroupSettings, Id, Queryable, Selection, Target, TaskState } from "./types.js";

/** A transaction of the caller's to act in. Absent: the app's own connection, committed at once. */
interface InTransaction {
  client?: Queryable;
}

/** What is asked, changed and ended by hand: the calls of an operator. Each is one call of SQL, and returns what that returns. */
export abstract class Operators {
  /** The rows of a statement in the caller's transaction, or on the app's own connection. */
  protected abstract run(client: Queryable | undefined, text: string, values: (string | null)[]): Promise<any[]>;

  /** Aborts tasks that have not settled; how many. */
  cancel(tasks: Id | Id[] | Selection, options: { status?: string } & InTransaction = {}): Promise<number> {
    return this.#change("cancel_tasks", tasks, { status: options.status }, options);
  }

  /** Gives aborted tasks new tries; how many. */
  retry(tasks: Id | Id[] | Selection, options: InTransaction = {}): Promise<number> {
    return this.#change("retry_tasks", tasks, {}, options);
  }

  /** Starts settled tasks over, and with `downstream`, as it is, what depends on them; how many. */
  rerun(tasks: Id | Id[], options: { downstream?: boolean } & InTransaction = {}): Promise<number> {
    const { downstream = true } = options;
    return this.#change("rerun_tasks", tasks, { downstream: String(downstream) }, options);
  }

  /** Forgets a step of a task and all that were saved after it, and enters it anew; how many steps. */
  async rewind(task: Id, step: string, options: InTransaction = {}): Promise<number> {
    return this.#one(options, "taskq.rewind_task($1::text, $2::text)", idOf(task), step);
  }

  /** Removes tasks; how many went, with those that were left without anything to wait for. */
  delete(tasks: Id | Id[] | Selection, options: InTransaction = {}): Promise<number> {
    return this.#change("delete_tasks", tasks, {}, options);
  }

  /** Takes tasks in progress back from workers that are dead; how many. */
  release(
    tasks: Id | Id[] | { actors?: string[]; actions?: string[] },
    options: { status?: string } & InTransaction = {},
  ): Promise<number> {
    return this.#change("release_tasks", tasks, { status: options.status }, options);
  }

  /** A task, as the view `taskq.tasks` shows it; `null` for an unknown id. */
  async get(task: Id, options: InTransaction = {}): Promise<TaskState | null> {
    const [row] = await this.run(options.client, "SELECT * FROM taskq.tasks WHERE id = $1::text", [idOf(task)]);
    return row ? stateOf(row) : null;
  }

  /** Why a task does not run, a reason each. */
  async why(task: Id, options: InTransaction = {}): Promise<string[]> {
    const rows = await this.run(options.client, "SELECT taskq.why($1::text) AS it", [idOf(task)]);
    return rows.map((row) => row.it);
  }

  /** The graph around a task, or of a group. */
  graph(task: Id, options: { format?: "dot" | "mermaid" | "text" } & InTransaction = {}): Promise<string> {
    const { format = "text" } = options;
    return this.#one(options, "taskq.graph($1::text, $2::text)", idOf(task), format);
  }

  /** Holds back an action, a group or a schedule; what the call of SQL returns. */
  pause(target: Target, options: InTransaction = {}): Promise<number | boolean> {
    return this.#target("pause", target, options);
  }

  /** Lets it go on. */
  resume(target: Target, options: InTransaction = {}): Promise<number | boolean> {
    return this.#target("resume", target, options);
  }

  /** Removes a schedule. */
  async unschedule(name: string, options: InTransaction = {}): Promise<void> {
    await this.run(options.client, "SELECT taskq.unschedule($1::text)", [name]);
  }

  /** Inserts a run of a schedule now; its id. */
  runSchedule(name: string, options: InTransaction = {}): Promise<string> {
    return this.#one(options, "taskq.run_schedule($1::text)", name);
  }

  /** Makes or changes the settings of an action, over all workers. What is left out stays; `clear` names what is to be unset. */
  setAction(action: string, settings: ActionSettings, options: InTransaction = {}): Promise<void> {
    return this.#set("set_action", action, settings, options);
  }

  /** Makes or changes the settings of a group. */
  setGroup(group: string, settings: GroupSettings, options: InTransaction = {}): Promise<void> {
    return this.#set("set_group", group, settings, options);
  }

  async #set(call: string, name: string, settings: object, { client }: InTransaction): Promise<void> {
    await this.run(client, ...settingCall(call, name, settingsOf(settings)));
  }

  #target(verb: string, target: Target, options: InTransaction): Promise<number | boolean> {
    const [[kind, name] = ["", ""], ...others] = Object.entries(target);
    if (others.length > 0 || !["action", "group", "schedule"].includes(kind))
      throw new TypeError(`${verb}: name one action, group or schedule`);
    return this.#one(options, `taskq.${verb}_${kind}($1::text)`, name);
  }

  /** A call that takes ids, or filters by name, and counts. */
  #change(
    call: string,
    tasks: Id | Id[] | Selection | { actors?: string[] },
    more: Record<string, string | undefined>,
    options: InTransaction,
  ): Promise<number> {
    const byId = Array.isArray(tasks) || typeof tasks === "string" || "id" in tasks;
    const filters: [string, string][] = byId
      ? [["task_ids", arrayOf([tasks].flat().map((task) => idOf(task as Id)))]]
      : Object.entries(tasks).flatMap(([key, values]) => (values ? [[key, arrayOf(values)] as [string, string]] : []));
    const others = Object.entries(more).filter(([, value]) => value !== undefined) as [string, string][];
    const types = [
      ...filters.map(() => "text[]"),
      ...others.map(([key]) => (key === "downstream" ? "boolean" : "text")),
    ];
    const named = [...filters, ...others];
    const list = named.map(([key], n) => `${key} => $${n + 1}::text::${types[n]}`).join(", ");
    return this.#one(options, `taskq.${call}(${list})`, ...named.map(([, value]) => value));
  }

  /** As JSON, since drivers differ in how they read a bigint. */
  async #one<T>({ client }: InTransaction, call: string, ...values: string[]): Promise<T> {
    const [row] = await this.run(client, `SELECT to_json(${call})::text AS it`, values);
    return JSON.parse(row.it);
  }
}

/** The id of a task that is named by its id or by a handle. */
export function idOf(task: Id): string {
  return typeof task === "string" ? task : task.id;
}

function stateOf(row: any): TaskState {
  const camel = (key: string) => key.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(row).map(([key, value]) => [camel(key), value])) as TaskState;
}
