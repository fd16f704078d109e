import pg from "pg";
import type { Queryable } from "./types.js";

/**
 * The rows of a statement, run through whatever client the caller's transaction is on. Every value is a text, and the
 * statement casts it (`$1::text::jsonb`): then no driver has to guess a type.
 */
export async function runOn(client: Queryable, text: string, values: (string | null)[]): Promise<any[]> {
  const any = client as any;
  if (typeof any.query === "function") return rowsOf(await any.query(text, values));
  if (typeof any.$queryRawUnsafe === "function") return rowsOf(await any.$queryRawUnsafe(text, ...values));
  if (typeof any.executeQuery === "function")
    return rowsOf(await any.executeQuery(kyselyQuery(text, values)));
  if (typeof any.raw === "function") return rowsOf(await any.raw(...knexQuery(text, values)));
  if (typeof any.unsafe === "function") return rowsOf(await any.unsafe(text, values));
  // Drizzle takes a text without values. So the values go into it, quoted.
  if (typeof any.execute === "function") return rowsOf(await any.execute(inlined(text, values)));
  throw new TypeError("client: this is no client of pg, Drizzle, Knex, Kysely, Prisma or postgres.js");
}

/** Some drivers answer with the rows, others with a result that has them. */
function rowsOf(answer: any): any[] {
  return Array.isArray(answer) ? answer : answer.rows;
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
