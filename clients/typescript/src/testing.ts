/**
 * Helpers for the tests of what uses taskq. Import them from `taskq-pg/testing`.
 *
 * @packageDocumentation
 */
import { createHash, randomBytes } from "node:crypto";
import pg from "pg";
import type { App } from "./app.js";
import { interval } from "./durations.js";
import { decodeBody, inMilliseconds } from "./encode.js";
import type { WorkOptions } from "./places.js";
import type { Duration } from "./types.js";

/** How the database of a test is made. */
export interface TestDatabaseOptions {
  /** A server on which the role may create databases and the extension. Absent: `PGHOST` and its like. */
  connectionString?: string;
  /** Runs once, when the template is made: create your tables here. Its text is a part of what names the template. */
  setup?: (client: pg.Client) => Promise<unknown>;
  /** What `setup` makes if its text does not say that: the last of the migrations that it runs, or a digest of them. */
  version?: string;
}

/** A database of a test. */
export interface TestDatabase {
  readonly connectionString: string;
  /** Drops it, whatever is connected. */
  drop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A task that was inserted, see {@link inserted}. */
export interface InsertedTask {
  id: string;
  action: string;
  body: unknown;
  state: string;
  status: string | null;
  priority: number;
  numTries: number;
  groupId: string | null;
  result: unknown;
  metadata: Record<string, unknown> | null;
}

/** The advisory lock that is held while a template is made: "task" in ASCII. */
const LOCK = 0x7461736b;

/**
 * Makes a database with the extension. It is copied from a template, which is made once and kept on the server.
 */
export async function createTestDatabase(options: TestDatabaseOptions = {}): Promise<TestDatabase> {
  const { connectionString, setup } = options;
  const name = `taskq_test_${randomBytes(6).toString("hex")}`;
  await withClient({ connectionString, database: maintenance(connectionString) }, async (client) => {
    await client.query("SELECT pg_advisory_lock($1)", [LOCK]);
    const template = await templateName(client, options);
    const { rowCount } = await client.query("SELECT FROM pg_database WHERE datname = $1", [template]);
    if (rowCount === 0) await makeTemplate(client, template, connectionString, setup);
    await client.query(`CREATE DATABASE ${name} TEMPLATE ${template}`);
  });
  const drop = () =>
    withClient({ connectionString, database: maintenance(connectionString) }, async (client) => {
      await client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    });
  return { connectionString: withDatabase(connectionString, name), drop, [Symbol.asyncDispose]: drop };
}

/** One for each script of the extension, which may be another one of the same version, each text of `setup`, and each `version`. */
async function templateName(
  client: pg.Client,
  { setup, version }: Pick<TestDatabaseOptions, "setup" | "version">,
): Promise<string> {
  const { rows } = await client.query(
    `SELECT md5(pg_read_binary_file(format('%s/extension/taskq--%s.sql', c.setting, e.default_version))) AS script
       FROM pg_config() AS c, pg_available_extensions AS e
      WHERE c.name = 'SHAREDIR' AND e.name = 'taskq'`,
  );
  const digest = createHash("sha256")
    .update(JSON.stringify([rows[0]?.script, String(setup), version]))
    .digest("hex");
  return `taskq_template_${digest.slice(0, 12)}`;
}

/** Makes it under another name first, so that one whose setup has failed is not taken for a good one. */
async function makeTemplate(
  client: pg.Client,
  template: string,
  connectionString: string | undefined,
  setup: TestDatabaseOptions["setup"],
): Promise<void> {
  await client.query(`DROP DATABASE IF EXISTS ${template}_new WITH (FORCE)`);
  await client.query(`CREATE DATABASE ${template}_new`);
  await withClient({ connectionString: withDatabase(connectionString, `${template}_new`) }, async (inside) => {
    await inside.query("CREATE EXTENSION taskq");
    await setup?.(inside);
  });
  // The queue's background worker may have come into it meanwhile.
  await client.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", [`${template}_new`]);
  await client.query(`ALTER DATABASE ${template}_new RENAME TO ${template}`);
}

/** Works until there is nothing to do. Throws the first error that a handler has thrown. */
export async function drain(app: App, options: Omit<WorkOptions, "untilIdle" | "signals"> = {}): Promise<void> {
  const errors: unknown[] = [];
  await app.work({
    ...options,
    untilIdle: true,
    signals: false,
    onError: (error, task) => {
      errors.push(error);
      options.onError?.(error, task);
    },
  });
  if (errors.length > 0) throw errors[0];
}

/** The tasks of an action that were inserted, the oldest first, whatever has become of them. */
export async function inserted(
  app: App,
  action: string,
  where: { id?: string; groupId?: string; state?: string } = {},
): Promise<InsertedTask[]> {
  const rows = await app.internals.run(
    `SELECT id, action, body, state, status, priority, num_tries, group_id, result, metadata
       FROM taskq.tasks
      WHERE action = $1 AND id = coalesce($2, id) AND coalesce(group_id, '') = coalesce($3, group_id, '') AND state = coalesce($4, state)
      ORDER BY inserted_at, id`,
    [action, where.id ?? null, where.groupId ?? null, where.state ?? null],
  );
  return rows.map(({ body, num_tries, group_id, ...row }) => ({
    ...row,
    body: decodeBody(body),
    numTries: num_tries,
    groupId: group_id,
  }));
}

/**
 * Moves the queue's clock of this database by so much, and stops it there: what is due by then is done by the next call.
 * It needs a superuser, and a database of its own. Call it while the app does not work.
 */
export async function travel(app: App, duration: Duration): Promise<Date> {
  const [row] = await app.internals.run(
    `WITH later AS MATERIALIZED (SELECT taskq.clock() + $1::interval AS now)
     SELECT ${inMilliseconds("now")} AS now, to_char(now AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.USZ') AS text, current_database() AS name
       FROM later`,
    [interval(duration)],
  );
  await app.internals.run(
    `ALTER DATABASE ${pg.escapeIdentifier(row.name)} SET taskq.now = ${pg.escapeLiteral(row.text)}`,
    [],
  );
  // The setting holds for the connections that are opened after it.
  await app.close();
  return new Date(row.now);
}

async function withClient(config: pg.ClientConfig, work: (client: pg.Client) => Promise<void>): Promise<void> {
  const { connectionString, database, ...rest } = config;
  const client = new pg.Client(
    connectionString
      ? { ...rest, connectionString: database ? withDatabase(connectionString, database) : connectionString }
      : config,
  );
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}

/** A database that is not the template: the one that was named, or `postgres`. */
function maintenance(connectionString: string | undefined): string | undefined {
  return connectionString ? undefined : (process.env.PGDATABASE ?? "postgres");
}

/** The same server, another database. The URL may be one without a host that `new URL` would read. */
function withDatabase(connectionString: string | undefined, database: string): string {
  if (connectionString) {
    const [, server, rest] = /^([a-z]+:\/\/[^/?#]*)(?:\/[^?#]*)?(.*)$/s.exec(connectionString) ?? [];
    if (server === undefined) throw new TypeError(`this is no URL of a server: ${connectionString}`);
    return `${server}/${database}${rest}`;
  }
  const { PGHOST = "localhost", PGPORT = "5432", PGUSER = "postgres" } = process.env;
  return `postgresql:///${database}?host=${encodeURIComponent(PGHOST)}&port=${PGPORT}&user=${encodeURIComponent(PGUSER)}`;
}
