import assert from "node:assert/strict";
import { test } from "node:test";
import { Database, until } from "./support.js";

// examples/fastify/shop.ts, as it is.
test("the example with Fastify and Drizzle", async () => {
  const database = await Database.make();
  try {
    const shop = database.worker("../docs/shop", { PORT: "0" });
    const url = () => /http:\/\/\S+/.exec(shop.output)?.[0] ?? "";
    await until(
      () => url() !== "",
      "it to listen",
      () => shop.output,
    );
    const post = async (path: string, body: object) => {
      const headers = { "content-type": "application/json" };
      const answer = await fetch(url() + path, { method: "POST", headers, body: JSON.stringify(body) });
      return (await answer.json()) as any;
    };
    const end = async (id: number) => (await fetch(`${url()}/orders/${id}/end`)).json() as any;
    await database.rows("INSERT INTO stock VALUES ('lamp', 20)");
    const small = await post("/orders", { item: "lamp", amount: 2 });
    assert.equal((await end(small.id)).result, "shipped");
    const large = await post("/orders", { item: "lamp", amount: 15 });
    await database.until(`order ${large.id}`, "blocked");
    assert.deepEqual(await post(`/orders/${large.id}/approval`, { by: "ann" }), { given: true });
    assert.equal((await end(large.id)).result, "shipped");
    const more = await post("/orders", { item: "lamp", amount: 4 });
    assert.equal((await end(more.id)).result, "sold out");
    assert.equal((await fetch(`${url()}/orders/99/end`)).status, 404);
    assert.equal((await fetch(`${url()}/health`)).status, 200);
    assert.deepEqual(await database.rows("SELECT * FROM stock"), [{ item: "lamp", left: 3 }]);
    const states = await database.rows("SELECT state FROM orders ORDER BY id");
    assert.deepEqual(
      states.map(({ state }) => state),
      ["shipped", "shipped", "sold out"],
    );
    const [told] = await database.rows("SELECT result FROM taskq.tasks WHERE action = 'mail'");
    assert.match(told.result, /you have approved order 2" to ann@shop.example/);
    // A failed order leaves no workflow.
    assert.equal((await post("/orders", { item: null, amount: 1 })).statusCode, 500);
    assert.equal((await database.rows("SELECT FROM taskq.tasks WHERE action = 'order'")).length, 3);
    shop.kill("SIGTERM");
    assert.deepEqual(await shop.exited, { code: 0, signal: null }, shop.output);
  } finally {
    await database.drop();
  }
});
