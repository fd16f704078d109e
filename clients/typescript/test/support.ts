// What the tests share: a database each, apps that remember what they log, worker processes, and waiting for a state.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { App, type AppOptions, type Id } from "taskq-pg";
import { createTestDatabase, type TestDatabase } from "taskq-pg/testing";

/** A database with the extension, and connections to it that look from outside. */
export class Database {
  readonly #database: TestDatabase;
  readonly client: pg.Pool;
  readonly #apps: App[] = [];
  readonly #workers: WorkerProcess[] = [];
  /** What is left open by a test that has failed. */
  readonly #closing: (() => void)[] = [];

  private constructor(database: TestDatabase) {
    this.#database = database;
    this.client = new pg.Pool({ connectionString: database.connectionString, max: 4 });
    // The server may be stopped under it.
    this.client.on("error", () => {});
  }

  static async make(): Promise<Database> {
    return new Database(await createTestDatabase());
  }

  /** Its name. */
  get name(): string {
    return new URL(this.connectionString).pathname.slice(1);
  }

  get connectionString(): string {
    return this.#database.connectionString;
  }

  /** Is called at the end of the tests of this database: an open listener would keep their process alive. */
  atEnd(close: () => void): void {
    this.#closing.push(close);
  }

  /** An app with a log. */
  app(options: AppOptions = {}): App & { lines: string[] } {
    const lines: string[] = [];
    const log = (message: string) => void lines.push(message);
    const app = new App({
      ...(options.pool ? {} : { connectionString: this.connectionString }),
      logger: { info() {}, warn: log, error: log },
      ...options,
    });
    this.#apps.push(app);
    return Object.assign(app, { lines });
  }

  /** A process that works, see `programs`. */
  worker(program: string, env: Record<string, string> = {}): WorkerProcess {
    const worker = new WorkerProcess(program, { ...env, DATABASE_URL: this.connectionString });
    this.#workers.push(worker);
    return worker;
  }

  async rows(text: string, ...values: unknown[]): Promise<any[]> {
    return (await this.client.query(text, values)).rows;
  }

  /** The task as the view shows it. */
  async task(id: Id): Promise<any> {
    const [row] = await this.rows("SELECT * FROM taskq.tasks WHERE id = $1", id);
    return row;
  }

  async states(action: string): Promise<Record<string, number>> {
    const rows = await this.rows("SELECT state, count(*)::int FROM taskq.tasks WHERE action = $1 GROUP BY 1", action);
    return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
  }

  /** Waits until the task is in this state. */
  async until(id: Id, state: string): Promise<any> {
    await until(async () => (await this.task(id))?.state === state, `task ${id} to be ${state}`);
    return this.task(id);
  }

  async drop(): Promise<void> {
    for (const close of this.#closing) close();
    for (const worker of this.#workers) worker.kill("SIGKILL");
    for (const app of this.#apps) await app.stop({ now: true });
    for (const app of this.#apps) await app.close();
    const [broken] = await this.rows("SELECT * FROM taskq.check()");
    await this.client.end();
    await this.#database.drop();
    if (broken) throw new Error(`the queue is not sound: ${JSON.stringify(broken)}`);
  }
}

/** A worker in a process of its own. */
export class WorkerProcess {
  readonly child: ChildProcess;
  readonly exited: Promise<{ code: number | null; signal: string | null }>;
  output = "";

  constructor(program: string, env: Record<string, string>) {
    const path = fileURLToPath(new URL(`programs/${program}.js`, import.meta.url));
    // A program that is a test itself must not take itself for a part of this one.
    const { NODE_TEST_CONTEXT: _, ...inherited } = process.env;
    this.child = spawn(process.execPath, [path], {
      env: { ...inherited, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text) => {
        this.output += text;
      });
    }
    this.exited = once(this.child, "exit").then(([code, signal]) => ({ code, signal }));
  }

  kill(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  /** Waits until it has said this. */
  says(text: string): Promise<void> {
    return until(
      () => this.output.includes(text),
      `the worker to say "${text}"`,
      () => this.output,
    );
  }
}

/** Waits until something is so. Generous: a busy machine is slow, not wrong. */
export async function until(
  so: () => boolean | Promise<boolean>,
  what: string,
  context: () => string = () => "",
): Promise<void> {
  for (const end = Date.now() + 60_000; !(await so()); await pause(20)) {
    if (Date.now() > end) throw new Error(`waited in vain for ${what}\n${context()}`);
  }
}

export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** A promise and what resolves it. */
export function gate<T = void>(): { promise: Promise<T>; open: (value: T) => void } {
  let open!: (value: T) => void;
  const promise = new Promise<T>((resolve) => {
    open = resolve;
  });
  return { promise, open };
}
