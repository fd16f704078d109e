// A worker that is killed, stopped and cut off by the tests. What its handlers do is told by their bodies.
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { App } from "taskq-pg";

const app = new App(process.env.DATABASE_URL as string);
const lease = process.env.LEASE ?? "2 seconds";

interface Body {
  /** Milliseconds. */
  sleep?: number;
  /** Heed the signal. */
  heed?: boolean;
}

app.task<Body>("job", { lease }, async ({ sleep: ms = 0, heed = true }, task) => {
  console.log(`begun ${task.id} try ${task.numTries}`);
  await sleep(ms, undefined, heed ? { signal: task.signal } : {});
  console.log(`ended ${task.id}`);
  return { by: process.pid };
});

app.task<Body>("booking", { lease, transactional: true }, async ({ sleep: ms = 0 }, task, client) => {
  await client.query("INSERT INTO bookings VALUES ($1)", [task.id]);
  console.log(`begun ${task.id} try ${task.numTries}`);
  await sleep(ms);
  return "booked";
});

app.task<Body>("completing", { lease }, async ({ sleep: ms = 0 }, task) => {
  const client = new pg.Client(process.env.DATABASE_URL);
  await client.connect();
  await client.query("BEGIN");
  await task.complete({ client });
  console.log(`begun ${task.id} try ${task.numTries}`);
  await sleep(ms);
});

const working = app.work({
  concurrency: Number(process.env.CONCURRENCY ?? 4),
  grace: process.env.GRACE ?? "30 seconds",
  exitAfter: "100 milliseconds",
});
console.log("works");
await working;
console.log("stopped");
