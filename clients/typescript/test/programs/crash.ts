// A process that crashes in one of its handlers, in the way that its environment names.
import { setTimeout as sleep } from "node:timers/promises";
import { App } from "taskq-pg";

const app = new App(process.env.DATABASE_URL as string);

app.task("innocent", { lease: "1 hour" }, async () => {
  console.log("begun innocent");
  await sleep(60_000);
});
app.task("poison", { lease: "1 hour" }, async () => {
  console.log("begun poison");
  await sleep(300);
  if (process.env.HOW === "timer") setTimeout(() => explode(), 1);
  else void Promise.reject(new Error("poison"));
  await sleep(60_000);
});

function explode(): never {
  throw new Error("poison");
}

if (process.env.HOW === "heeded") process.on("uncaughtException", (error) => console.log(`heeded ${error.message}`));
await app.work({ concurrency: 4 });
console.log("not reached");
