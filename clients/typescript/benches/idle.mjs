// Workers that have nothing to do, and what a worker keeps: latency, processor time, memory.
//
//     npm install && npm run idle             PGHOST and its like say where: a server with taskq, as a superuser
//     SYSTEMS=taskq npm run idle              only this one; fifty workers of the others want max_connections = 1000
//
// Latency is from before the insertion of a single task to the line that its handler writes, with 1 and with 50 idle workers. Processor
// time is that of 20 idle workers and of their connections, over ten seconds. Memory is the resident size of one worker after 1,000
// tasks, and after 100,000, or as many as a system performs in 20 seconds. Each worker is a process of its own.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { createInterface } from "node:readline";
import pg from "pg";
import { makeDatabase, systems } from "./systems.mjs";

const CONCURRENCY = 10;
const TICKS_A_SECOND = 100;
const PAGE = 4096;
const [, , mode, ...values] = process.argv;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** So many workers; `ran(n)` is there when n more tasks have run in any of them. */
function start(name, connectionString, howMany, concurrency = CONCURRENCY) {
  let seen = 0;
  let wanted = Infinity;
  let tell;
  const children = Array.from({ length: howMany }, () => {
    const child = spawn(process.execPath, ["idle.mjs", "worker", name, connectionString, String(concurrency)], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    createInterface({ input: child.stdout }).on("line", () => {
      if (++seen === wanted) tell();
    });
    return child;
  });
  return {
    pids: children.map((child) => child.pid),
    ran(count) {
      wanted = seen + count;
      return new Promise((resolve) => {
        tell = resolve;
      });
    },
    async stop() {
      const exits = children.map((child) => new Promise((resolve) => child.once("exit", resolve)));
      for (const child of children) child.kill("SIGKILL");
      await Promise.all(exits);
    },
  };
}

/** Waits until they are connected and have asked for tasks; returns the server's processes for them. */
async function settled(connectionString, howMany) {
  const client = new pg.Client(connectionString);
  await client.connect();
  try {
    for (;;) {
      const { rows } = await client.query(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
      );
      if (rows.length >= howMany) {
        await pause(4000);
        return rows.map(({ pid }) => pid);
      }
      await pause(200);
    }
  } finally {
    await client.end();
  }
}

/** Seconds of processor time; of a process that has ended none. */
function used(pids) {
  let ticks = 0;
  for (const pid of pids) {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
      ticks += Number(fields[11]) + Number(fields[12]);
    } catch {}
  }
  return ticks / TICKS_A_SECOND;
}

const quantile = (numbers, q) => numbers.toSorted((a, b) => a - b)[Math.floor(q * (numbers.length - 1))];

async function latency(name, howMany) {
  const database = await makeDatabase(name);
  const producer = await systems[name].open(database, 1, () => {});
  const workers = start(name, database, howMany);
  await settled(database, howMany);
  const found = [];
  for (let n = 0; n < 40; n++) {
    await pause(50);
    const begun = performance.now();
    const ran = workers.ran(1);
    await producer.insert(1);
    await ran;
    found.push(performance.now() - begun);
  }
  await workers.stop();
  await producer.stop().catch(() => {});
  return `${quantile(found, 0.5).toFixed(1)}, ${quantile(found, 0.95).toFixed(1)}`;
}

async function idle(name, howMany, seconds = 10) {
  const database = await makeDatabase(name);
  const workers = start(name, database, howMany);
  const backends = await settled(database, howMany);
  const before = [used(workers.pids), used(backends)];
  await pause(seconds * 1000);
  const shares = [used(workers.pids) - before[0], used(backends) - before[1]].map((share) => (100 * share) / seconds);
  await workers.stop();
  return shares.map((share) => share.toFixed(1));
}

async function memory(name) {
  const database = await makeDatabase(name);
  const producer = await systems[name].open(database, 1, () => {});
  const workers = start(name, database, 1, 100);
  await settled(database, 1);
  const perform = async (count) => {
    const ran = workers.ran(count);
    for (let left = count; left > 0; left -= 1000) await producer.insert(1000);
    await ran;
  };
  const size = async () => {
    await pause(1000);
    return (Number(readFileSync(`/proc/${workers.pids[0]}/statm`, "utf8").split(" ")[1]) * PAGE) / 1e6;
  };
  await perform(1000);
  const first = await size();
  let many = 0;
  for (const end = performance.now() + 20_000; many < 100_000 && performance.now() < end; many += 5000) await perform(5000);
  const last = await size();
  await workers.stop();
  await producer.stop().catch(() => {});
  return [first.toFixed(0), `${many.toLocaleString("en")}: ${last.toFixed(0)}`];
}

async function main() {
  const names = process.env.SYSTEMS?.split(",") ?? ["taskq", "graphile-worker", "pg-boss batches"];
  console.log(`load before: ${loadavg().map((n) => n.toFixed(2)).join(" ")}\n`);
  console.log(
    "| system | latency ms, 1 idle worker: median, 95 % | 50 idle workers | 20 idle workers, % of a core | the server for them | MB after 1,000 tasks | and after |",
  );
  console.log("|---|---|---|---|---|---|---|");
  for (const name of names) {
    const cells = [await latency(name, 1), await latency(name, 50), ...(await idle(name, 20)), ...(await memory(name))];
    console.log(`| ${name} | ${cells.join(" | ")} |`);
  }
}

if (mode === "worker") {
  const [name, connectionString, concurrency] = values;
  const system = await systems[name].open(connectionString, Number(concurrency), () => process.stdout.write(".\n"));
  await system.start();
} else {
  await main();
  process.exit();
}
