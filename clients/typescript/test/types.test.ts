import assert from "node:assert/strict";
import { test } from "node:test";
import { App, type Handle, type Task } from "taskq-pg";

// The compiler is the test: a line that should not compile and does is an error.
test("types", () => {
  const app = new App();
  const resize = app.task<{ file: string }, number>("resize", ({ file }, task: Task) => file.length + task.numTries);
  app.task<{ file: string }>("book", { transactional: true }, async ({ file }, _task, client) => {
    await client.query("SELECT $1", [file]);
  });
  app.task("parsed", { schema: (body) => Number(body) }, (n) => n.toFixed());
  app.workflow<{ id: number }, string>("order", async (ctx, { id }) => {
    const paid = await ctx.step("pay", () => id);
    const sizes: number[] = await ctx.map("sizes", resize, [{ file: "a" }]);
    const size: number = await ctx.call("size", resize, { file: "a" });
    // @ts-expect-error: the handler wants a file
    await ctx.call("wrong", resize, { files: "a" });
    return `${paid.toFixed()} ${sizes.length} ${size}`;
  });
  const unused = async () => {
    const handle: Handle<number> = await resize.insert({ file: "a.png" }, { uniqueBy: "a" });
    const named: Handle<number> = await app.insert(resize, { file: "a.png" }, { dependsOn: [handle] });
    const length: number = (await named.wait()).result;
    // @ts-expect-error: the handler wants a file
    await app.insert(resize, { files: "a.png" });
    // @ts-expect-error: a length of time is a text
    await app.insert(resize, { file: "a.png" }, { delay: 5 });
    // @ts-expect-error: the handler wants a file
    await resize.insert({ files: "a.png" });
    // @ts-expect-error: no such key
    await resize.insert({ file: "a.png" }, { max_tries: 3 });
    // @ts-expect-error: a handler without a transaction has no client
    app.task("plain", {}, async (_body, _task, client) => client);
    return length + (await app.cancel([named, "other"]));
  };
  assert.equal(typeof unused, "function");
});
