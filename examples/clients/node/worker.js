// A worker for taskq in Node (pg): own, heartbeat, return.
//
//     PGHOST=... PGDATABASE=... node worker.js [ACTION]
//
// It performs one task at a time; run as many processes as you want tasks at once, or pool.js. SIGTERM or SIGINT: it takes no
// more, lets the task in hand finish within the grace, and gives it back if that does not suffice. A task that was
// cancelled or taken over is dropped as soon as a heartbeat hears of it.
'use strict';

const { createHash } = require('node:crypto');
const { hostname } = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const { Client } = require('pg');

const ACTION = process.argv[2] ?? 'checksum';
const ACTOR = `${hostname()}:${process.pid}`;
const LEASE = Number(process.env.TASKQ_LEASE ?? 60); // seconds that a death of this process goes unnoticed
const GRACE = Number(process.env.TASKQ_GRACE ?? 20); // seconds to finish after SIGTERM; less than the supervisor grants
const WAIT = 2; // seconds of one waiting call, which is also how long an idle worker takes to stop

const log = (...words) => console.error(new Date().toISOString(), ...words);

/** The task can never succeed: no further try makes sense. */
class Rejected extends Error {}

/** The work itself. It must heed the signal; its result is kept with the task. */
async function perform(task, signal) {
  let body;
  try {
    body = JSON.parse(task.body);
  } catch (error) {
    throw new Rejected(`the body cannot be read: ${error.message}`);
  }
  if (typeof body?.text !== 'string') throw new Rejected('the body lacks a text');
  if (body.fail) throw new Error(body.fail); // anything else may work the next time
  await sleep((body.seconds ?? 0) * 1000, undefined, { signal });
  const sha256 = createHash('sha256').update(body.text).digest('hex');
  return { sha256, head: body.text.slice(0, 10), client: 'node' };
}

/** The result as JSON. One that is none must not end the worker: the task is rejected. */
function toJson(result) {
  try {
    return JSON.stringify(result);
  } catch (error) {
    throw new Rejected(`its result is no JSON: ${error.message}`);
  }
}

/** What a text of PostgreSQL can hold. */
const printable = (text) => text.replaceAll('\0', '');

let client; // one connection, opened again as often as it takes
let opening; // the promise of it, so that heartbeats and returns do not open two
let stopping = false;
let giveUpAt = Infinity;

async function connect() {
  const fresh = new Client({
    application_name: 'taskq worker',
    connectionTimeoutMillis: 5000,
    query_timeout: WAIT * 1000 + 30000, // a server that has vanished
    keepAlive: true,
  });
  const forget = () => {
    if (client === fresh) client = undefined;
  };
  fresh.on('error', forget);
  fresh.on('end', forget);
  try {
    await fresh.connect();
  } catch (error) {
    fresh.end().catch(() => {});
    throw error;
  }
  client = fresh;
}

/** The rows of a query in a transaction of its own. A query may run twice if its answer gets lost. */
async function call(text, values) {
  for (let delay = 100; ; delay = Math.min(delay * 2, 10000)) {
    const used = client;
    try {
      if (!used) {
        opening ??= connect().finally(() => (opening = undefined));
        await opening;
        continue;
      }
      return (await used.query(text, values)).rows;
    } catch (error) {
      // 25006: a standby, since a failover or not yet promoted. Another connection may find the primary.
      const answered = error.code?.length === 5 && !/^(08|57P|53300|25006|EPIPE)/.test(error.code);
      if (answered || Date.now() > giveUpAt) throw error;
      log(`no connection, again in about ${delay} ms:`, error.message);
      if (used && client === used) client = undefined;
      used?.end().catch(() => {});
    }
    await sleep(delay * (0.5 + Math.random()));
  }
}

/** The next task, or undefined. Sleeps in the server until there is one. */
async function own() {
  const rows = await call(
    `SELECT task_id AS id, token, body, num_tries
       FROM taskq.own_tasks($1, 1, ARRAY[$2], $3::float8 * interval '1 second', wait => $4::float8 * interval '1 second')`,
    [ACTOR, ACTION, LEASE, WAIT],
  );
  return rows[0];
}

/** Moves the deadline; false if the task is not ours any more. */
async function extend(task) {
  const rows = await call(
    `SELECT owned FROM taskq.extend_tasks_ownership($1, ARRAY[$2], ARRAY[$3::uuid], $4::float8 * interval '1 second')`,
    [ACTOR, task.id, task.token, LEASE],
  );
  return rows[0].owned;
}

/** Ends the performance. */
async function give(task, { code, status, result, countTry = true }) {
  try {
    const rows = await call(
      `SELECT taskq.return_task($1, $2, $3, $4, result => $5, count_try => $6) AS code`,
      [task.id, task.token, code, status, result, countTry],
    );
    log(`${task.id}: ${rows[0].code}`);
  } catch (error) {
    if (error.code?.startsWith('22') && result !== undefined) {
      // JSON that the server cannot store, with a \u0000 for one. The next try would have no other.
      log(`${task.id}: its result cannot be stored:`, error.message);
      return give(task, { code: 'aborted', status: printable(`its result cannot be stored: ${error.message}`) });
    }
    if (!['TQ001', 'TQ003'].includes(error.code)) throw error;
    // Cancelled, deleted, taken over, or returned by us and only the answer was lost.
    log(`${task.id}: dropped, it is not ours any more`);
  }
}

/** Performs a task and returns it, whatever happens. */
async function work(task) {
  log(`${task.id}: try ${task.num_tries}`);
  const interrupt = new AbortController();
  const heartbeat = setInterval(async () => {
    try {
      if (!(await extend(task))) interrupt.abort();
    } catch (error) {
      log(`${task.id}: no heartbeat:`, error.message);
    }
  }, (LEASE * 1000) / 3);
  const grace = setInterval(() => Date.now() > giveUpAt - 5000 && interrupt.abort(), 100);
  let outcome;
  try {
    outcome = { code: 'completed', result: toJson(await perform(task, interrupt.signal)) };
  } catch (error) {
    if (interrupt.signal.aborted) {
      // It has not failed: it uses up no try, and need not wait for the back-off.
      outcome = { code: 'pending', status: 'given back by a worker that stops', countTry: false };
    } else if (error instanceof Rejected) {
      outcome = { code: 'aborted', status: printable(error.message) };
    } else {
      // When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
      outcome = { code: 'pending', status: printable(String(error)) };
    }
  } finally {
    clearInterval(heartbeat);
    clearInterval(grace);
  }
  await give(task, outcome);
}

function stop() {
  stopping = true;
  giveUpAt = Date.now() + (GRACE + 5) * 1000;
}

async function main() {
  process.on('SIGTERM', stop).on('SIGINT', stop);
  while (!stopping) {
    const task = await own();
    if (task) await work(task);
  }
  await client?.end();
  log('stopped');
}

main().catch((error) => {
  log(error);
  process.exit(1);
});
