// A shop with Fastify and Drizzle: an order and its workflow commit together, a person approves large ones, and one process
// serves and works. Put it behind several processes, and each does a part of the work.
//
//   npm install fastify drizzle-orm pg taskq-pg && npx tsx shop.ts        DATABASE_URL, PORT
import { eq, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { integer, pgTable, text } from "drizzle-orm/pg-core";
import Fastify from "fastify";
import pg from "pg";
import { App, NotFound, Reject, TimedOut } from "taskq-pg";

const { DATABASE_URL, PORT = "3000" } = process.env;
const pool = new pg.Pool({ connectionString: DATABASE_URL });
const db = drizzle(pool);
const stock = pgTable("stock", { item: text().primaryKey(), left: integer().notNull() });
const orders = pgTable("orders", {
  id: integer().primaryKey().generatedAlwaysAsIdentity(),
  item: text().notNull(),
  amount: integer().notNull(),
  state: text().notNull().default("new"),
});

interface Order {
  id: number;
  item: string;
  amount: number;
}

const app = new App({ connectionString: DATABASE_URL, name: "shop", version: "1.0" });

// The rate of the mail service, over all processes. What it says no to for good is not tried again.
const mail = app.task<{ to: string; text: string }, string>(
  "mail",
  { rateLimit: 50, ratePeriod: "1 second", maxTries: 8 },
  async ({ to, text }, task) => {
    if (!to.includes("@")) throw new Reject(`no address: ${to}`);
    // The service knows by the task's id whether it has sent this one before.
    return `mail ${task.id}: "${text}" to ${to}`;
  },
);

// The step and the row are one: the item leaves the stock once, however often a process dies.
const order = app.workflow<Order, string>("order", async (ctx, { id, item, amount }) => {
  const set = (state: string) =>
    ctx.transaction(state, async (client) => {
      await drizzle(client).update(orders).set({ state }).where(eq(orders.id, id));
    });
  if (amount > 10) {
    await set("waits for approval");
    try {
      const { by } = await ctx.waitFor<{ by: string }>("approval", {
        signal: `approve order ${id}`,
        timeout: "2 days",
      });
      await ctx.call("tell", mail, { to: `${by}@shop.example`, text: `you have approved order ${id}` });
    } catch (error) {
      if (!(error instanceof TimedOut)) throw error;
      await set("refused");
      return "refused";
    }
  }
  const taken = await ctx.transaction("take", async (client) => {
    const rows = await drizzle(client)
      .update(stock)
      .set({ left: sql`${stock.left} - ${amount}` })
      .where(sql`${stock.item} = ${item} AND ${stock.left} >= ${amount}`)
      .returning();
    return rows.length === 1;
  });
  const state = taken ? "shipped" : "sold out";
  await set(state);
  return state;
});

app.schedule("report", "0 6 * * *", mail, { to: "owner@shop.example", text: "yesterday" });

const server = Fastify();

server.post<{ Body: Omit<Order, "id"> }>("/orders", async ({ body }, reply) => {
  const { item, amount } = body;
  const id = await db.transaction(async (tx) => {
    const [row] = await tx.insert(orders).values({ item, amount }).returning();
    const made = row as Order;
    // In the transaction of the order: no order without its workflow, and none the other way round.
    await order.insert({ id: made.id, item, amount }, { id: `order ${made.id}`, client: tx });
    return made.id;
  });
  return reply.code(202).send({ id });
});

server.post<{ Params: { id: string }; Body: { by: string } }>("/orders/:id/approval", async (request) => ({
  given: await app.signal(`approve order ${request.params.id}`, request.body),
}));

// What a client waits for is answered when it is there; all these requests share one connection.
server.get<{ Params: { id: string } }>("/orders/:id/end", async ({ params }, reply) => {
  try {
    return await app.wait(`order ${params.id}`, { timeout: "20 seconds" });
  } catch (error) {
    if (error instanceof NotFound) return reply.code(404).send();
    if (error instanceof TimedOut) return reply.code(204).send();
    throw error;
  }
});

server.get("/health", (_, reply) => reply.code(app.healthy() ? 200 : 503).send());

await db.execute(sql`CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, "left" int NOT NULL)`);
await db.execute(sql`CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
                       item text NOT NULL, amount int NOT NULL, state text NOT NULL DEFAULT 'new')`);
console.log(await server.listen({ port: Number(PORT) }));
await app.work({ concurrency: 20, grace: "8 seconds" }); // until SIGTERM
await server.close();
await app.close();
await pool.end();
