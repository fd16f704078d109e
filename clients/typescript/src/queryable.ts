import pg from "pg";
import { mended } from "./errors.js";
import type { Queryable } from "./types.js";

/**
 * The rows of a statement, run through whatever client the caller's transaction is on. Every value is a text, and the
 * statement casts it (`$1::text::jsonb`): then no driver has to guess a type.
 */
export async function runOn(client: Queryable, text: string, values: (string | null)[]): Promise<any[]> {
  try {
    const answer = await sent(client, text, values);
    // Some drivers answer with the rows, others with a result that has them.
    return Array.isArray(answer) ? answer : answer.rows;
  } catch (error) {
    throw mended(error);
  }
}

function sent(any: any, text: string, values: (string | null)[]): PromiseLike<any> {
  // Each statement of it may go over another connection, and none is in the caller's transaction.
  if (any instanceof pg.Pool || typeof any.totalCount === "number")
    throw new TypeError("client: a pool has no transaction: pass a client of it (`await pool.connect()`)");
  if (typeof any.query === "function") return any.query(text, values);
  if (typeof any.$queryRawUnsafe === "function") return any.$queryRawUnsafe(text, ...values);
  if (typeof any.executeQuery === "function") return any.executeQuery(kyselyQuery(text, values));
  if (typeof any.raw === "function") return any.raw(...knexQuery(text, values));
  if (typeof any.unsafe === "function") return any.unsafe(text, values);
  // Drizzle takes a text without values. So the values go into it, quoted.
  if (typeof any.execute === "function") return any.execute(inlined(text, values));
  throw new TypeError("client: this is no client of pg, Drizzle, Knex, Kysely, Prisma or postgres.js");
}

/** What `CompiledQuery.raw` of Kysely makes. */
function kyselyQuery(sql: string, parameters: unknown[]) {
  return {
    sql,
    parameters,
    query: { kind: "RawNode", sqlFragments: [sql], parameters: [] },
    queryId: { queryId: "taskq" },
  };
}

/** Knex numbers its `?` itself, so a value stands there as often as it is used. */
function knexQuery(text: string, values: unknown[]): [string, unknown[]] {
  const bindings: unknown[] = [];
  const sql = text.replace(/\$(\d+)/g, (_, number) => {
    bindings.push(values[Number(number) - 1]);
    return "?";
  });
  return [sql, bindings];
}

function inlined(text: string, values: (string | null)[]): string {
  return text.replace(/\$(\d+)/g, (_, number) => {
    const value = values[Number(number) - 1];
    return value === null || value === undefined ? "NULL" : pg.escapeLiteral(value);
  });
}
