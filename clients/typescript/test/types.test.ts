import assert from "node:assert/strict";
import { test } from "node:test";
import { App, type Task } from "taskq-pg";

// The compiler is the test: a line that should not compile and does is an error.
test("types", () => {
  const app = new App();
  const resize = app.task<{ file: string }, number>(
    "resize",
    ({ file }, task: Task) => file.length + task.numTries,
  );
  app.task<{ file: string }>("book", { transactional: true }, async ({ file }, _task, client) => {
    await client.query("SELECT $1", [file]);
  });
  app.task("parsed", { schema: (body) => Number(body) }, (n) => n.toFixed());
  app.workflow<{ id: number }, string>("order", async (ctx, { id }) => {
    const paid = await ctx.step("pay", () => id);
    const sizes: number[] = await ctx.map<number>("sizes", "resize", [{ file: "a" }]);
    return `${paid.toFixed()} ${sizes.length}`;
  });
  const unused = async () => {
    const id: string = await app.insert("resize", { file: "a.png" });
    const skipped: string | null = await app.insert("resize", 1, { id, onConflict: "skip" });
    // @ts-expect-error: it may be left out, and then there is no id
    const wrong: string = await app.insert("resize", 1, { id, onConflict: "skip" });
    // @ts-expect-error: the handler wants a file
    await resize.insert({ files: "a.png" });
    // @ts-expect-error: no such key
    await resize.insert({ file: "a.png" }, { max_tries: 3 });
    // @ts-expect-error: a handler without a transaction has no client
    app.task("plain", {}, async (_body, _task, client) => client);
    return [skipped, wrong];
  };
  assert.equal(typeof unused, "function");
});
