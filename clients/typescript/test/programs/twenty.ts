// A workflow of twenty steps, for a test that kills it. Each transactional step leaves a row, each other step a line.
import { setTimeout as sleep } from "node:timers/promises";
import { App } from "taskq-pg";

const app = new App(process.env.DATABASE_URL as string);

app.task("double", (n: number) => 2 * n);

app.workflow<number>("twenty", { lease: "5 seconds" }, async (ctx, begin) => {
  let sum = begin;
  for (let n = 1; n <= 17; n++) {
    if (n % 2 === 0) {
      sum += await ctx.step(`plain ${n}`, async () => {
        await sleep(5);
        return n;
      });
    } else {
      sum += await ctx.transaction(`row ${n}`, async (client) => {
        await client.query("INSERT INTO effects VALUES ($1, $2)", [ctx.id, n]);
        await sleep(5);
        return n;
      });
    }
  }
  sum += await ctx.call<number>("child", "double", 4);
  sum += await ctx.waitFor<number>("signal", { signal: `go ${ctx.id}`, timeout: "1 hour" });
  const [a, b] = await ctx.map<number>("children", "double", [1, 2]);
  return sum + (a as number) + (b as number);
});

console.log("works");
await app.work({ concurrency: 8 });
