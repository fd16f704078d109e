// No-op tasks a second in one worker process, and the time from insertion to handler, beside other queues.
//
//     npm install && npm run bench            PGHOST and its like say where: a server with taskq, as a superuser
//     ROUNDS=5 SYSTEMS=taskq,graphile-worker npm run bench
//
// The systems take turns, so that what else the machine does falls on all of them alike. A figure is the median of the
// rounds, with the least and the greatest.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { promisify } from "node:util";
import pg from "pg";
import { makeDatabase, systems } from "./systems.mjs";

const run = promisify(execFile);
const rounds = Number(process.env.ROUNDS ?? 3);
const names = process.env.SYSTEMS?.split(",") ?? Object.keys(systems);
const counts = { 1: 2000, 10: 5000, 100: 10_000 };

const measure = async (...values) => {
  const { stdout } = await run(process.execPath, ["measure.mjs", ...values.map(String)], { maxBuffer: 1e8 });
  return JSON.parse(stdout.trim().split("\n").at(-1));
};
const quantile = (numbers, q) => numbers.toSorted((a, b) => a - b)[Math.floor(q * (numbers.length - 1))];
const version = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;

const client = new pg.Client({ database: "postgres" });
await client.connect();
const { rows: [server] } = await client.query(
  "SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit",
);
await client.end();
console.log(`PostgreSQL ${server.version}, fsync ${server.fsync}, synchronous_commit ${server.commit}; Node ${process.version}; ${cpus().length} cores`);
console.log(`graphile-worker ${version("graphile-worker")}, pg-boss ${version("pg-boss")}; ${rounds} rounds; load before: ${loadavg().map((n) => n.toFixed(2)).join(" ")}`);

const databases = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await makeDatabase(name)])));

console.log("\n| no-op tasks a second | concurrency 1 | 10 | 100 |\n|---|---|---|---|");
const rates = {};
for (let round = 0; round < rounds; round++) {
  for (const [concurrency, count] of Object.entries(counts)) {
    for (const name of names) {
      const rate = await measure("rate", name, databases[name], concurrency, count);
      ((rates[name] ??= {})[concurrency] ??= []).push(rate);
    }
  }
}
const whole = (n) => Math.round(n).toLocaleString("en");
for (const name of names) {
  const cells = Object.values(rates[name]).map((all) => `${whole(quantile(all, 0.5))} (${whole(Math.min(...all))}-${whole(Math.max(...all))})`);
  console.log(`| ${name} | ${cells.join(" | ")} |`);
}

console.log("\n| from insertion to handler, idle worker, ms | median | 95 % |\n|---|---|---|");
const latencies = {};
for (let round = 0; round < rounds; round++) {
  for (const name of names) (latencies[name] ??= []).push(...(await measure("latency", name, databases[name], 10, 40)));
}
for (const name of names) console.log(`| ${name} | ${quantile(latencies[name], 0.5).toFixed(1)} | ${quantile(latencies[name], 0.95).toFixed(1)} |`);
console.log(`\nload after: ${loadavg().map((n) => n.toFixed(2)).join(" ")}`);
