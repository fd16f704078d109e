// Workers that have nothing to do, and what a worker keeps: latency, processor time, memory.
//
//     npm install && npm run idle             PGHOST and its like say where: a server with taskq, as a superuser
//     SYSTEMS=taskq npm run idle              only this one; fifty workers of the others want max_connections = 1000
//
// Latency is from before the insertion of a single task to the line that its handler writes, with 1 and with 50 idle workers. Processor
// time is that of 20 idle workers and of the whole server, over ten seconds: connections of pools come and go. Memory is the resident size of one worker after 1,000
// tasks, and after 100,000, or as many as a system performs in 20 seconds. Each worker is a process of its own.
import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
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

/** Waits until they are connected and have asked for tasks; returns the server's first process. */
async function settled(connectionString, howMany) {
  const client = new pg.Client(connectionString);
  await client.connect();
  try {
    for (;;) {
      const { rows } = await client.query(
        "SELECT pid, pg_backend_pid() AS ours FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
      );
      if (rows.length >= howMany) {
        await pause(4000);
        return status(rows[0].ours).parent;
      }
      await pause(200);
    }
  } finally {
    await client.end();
  }
}

/** The parent of a process, and seconds of processor time: its own, and that of its children that have ended. */
function status(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ").map(Number);
  return { parent: fields[1], own: (fields[11] + fields[12]) / TICKS_A_SECOND, ended: (fields[13] + fields[14]) / TICKS_A_SECOND };
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

/** Seconds of processor time of a server, whose connections come and go. */
function usedByServer(first) {
  const { own, ended } = status(first);
  const children = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((pid) => {
    try {
      const process = status(pid);
      return process.parent === first ? [process.own] : [];
    } catch {
      return [];
    }
  });
  return own + ended + sum(children);
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
  const server = await settled(database, howMany);
  const used = () => [sum(workers.pids.map((pid) => status(pid).own)), usedByServer(server)];
  const before = used();
  await pause(seconds * 1000);
  const shares = used().map((after, n) => (100 * (after - before[n])) / seconds);
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
