// From the cancel of a task to the end of its handler, which heeds its signal: in milliseconds, over so many tasks one after the other.
//
//     npm install && npm run cancel           PGHOST and its like say where: a server with taskq, as a superuser
//     TASKS=1000 HANDLERS=20                  how many are cancelled, and how many handlers run beside them
import { loadavg } from "node:os";
import { App } from "taskq-pg";
import { makeDatabase } from "./systems.mjs";

const { TASKS = "1000", HANDLERS = "20" } = process.env;
const connectionString = await makeDatabase("taskq");
const quiet = { info() {}, warn() {}, error() {} };
const worker = new App({ connectionString, logger: quiet });
const other = new App({ connectionString, logger: quiet });
const begun = new Map();
const ended = new Map();
worker.task("waits", async (_, task) => {
  const { signal } = task;
  begun.get(task.id)?.();
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  ended.get(task.id)?.(performance.now());
});
const working = worker.work({ concurrency: Number(HANDLERS) + 1, signals: false });
const beside = await other.insertMany("waits", new Array(Number(HANDLERS)).fill(null));
const times = [];
for (let n = 0; n < Number(TASKS); n++) {
  const id = `cancelled ${n}`;
  const runs = new Promise((resolve) => begun.set(id, resolve));
  const ends = new Promise((resolve) => ended.set(id, resolve));
  const handle = await other.insert("waits", null, { id });
  await runs;
  const asked = performance.now();
  const cancelling = handle.cancel();
  times.push((await ends) - asked);
  await cancelling;
}
await other.cancel(beside);
await worker.stop();
await working;
times.sort((a, b) => a - b);
const at = (part) => times[Math.min(Math.floor(part * times.length), times.length - 1)].toFixed(1);
console.log(`From a cancel to the end of its handler, ${TASKS} times beside ${HANDLERS} handlers, load ${loadavg()[0].toFixed(1)}:`);
console.log(`p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, longest ${at(1)} ms`);
await Promise.all([worker.close(), other.close()]);
