// A worker for taskq with many tasks at once in Node (pg): one heartbeat for all of them, returns in batches
// that bring the next tasks along.
//
//     PGHOST=... PGDATABASE=... node pool.js [ACTION] [TASKS]
//
// Two connections, however many tasks: one sleeps until there is work, the other extends, returns and takes the next.
// SIGTERM or SIGINT: it takes no more, lets the tasks in hand finish within the grace, and gives back what does not. A
// task that was cancelled or taken over is dropped as soon as a heartbeat hears of it.
'use strict';

const { createHash } = require('node:crypto');
const { hostname } = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const { Client } = require('pg');

const ACTION = process.argv[2] ?? 'checksum';
const TASKS = Number(process.argv[3] ?? 10); // at once
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
  return { sha256, head: body.text.slice(0, 10), client: 'node pool' };
}

let giveUpAt = Infinity;

/** One connection, opened again as often as it takes. */
class Link {
  client;
  opening;

  async connect() {
    const fresh = new Client({
      application_name: 'taskq worker',
      connectionTimeoutMillis: 5000,
      query_timeout: WAIT * 1000 + 30000, // a server that has vanished
      keepAlive: true,
    });
    const forget = () => {
      if (this.client === fresh) this.client = undefined;
    };
    fresh.on('error', forget);
    fresh.on('end', forget);
    try {
      await fresh.connect();
    } catch (error) {
      fresh.end().catch(() => {});
      throw error;
    }
    this.client = fresh;
  }

  /** The rows of a query in a transaction of its own. A query may run twice if its answer gets lost. */
  async call(text, values) {
    for (let delay = 100; ; delay = Math.min(delay * 2, 10000)) {
      const used = this.client;
      try {
        if (!used) {
          this.opening ??= this.connect().finally(() => (this.opening = undefined));
          await this.opening;
          continue;
        }
        return (await used.query(text, values)).rows;
      } catch (error) {
        // 25006: a standby, since a failover or not yet promoted. Another connection may find the primary.
        const answered = error.code?.length === 5 && !/^(08|57P|53300|25006|EPIPE)/.test(error.code);
        if (answered || Date.now() > giveUpAt) throw error;
        log(`no connection, again in about ${delay} ms:`, error.message);
        if (used && this.client === used) this.client = undefined;
        used?.end().catch(() => {});
      }
      await sleep(delay * (0.5 + Math.random()));
    }
  }
}

const waiter = new Link();
const link = new Link();
let hand = []; // performances: { task, interrupt, lost, outcome }, until they are returned
let stopping = false;
let room = () => {}; // tells that some were returned, or that we are to stop

/** Up to so many tasks. Sleeps in the server until there are some. */
function own(number) {
  return waiter.call(
    `SELECT task_id AS id, token, body, num_tries
       FROM taskq.own_tasks($1, $2, ARRAY[$3], $4::float8 * interval '1 second', wait => $5::float8 * interval '1 second')`,
    [ACTOR, number, ACTION, LEASE, WAIT],
  );
}

/** One call for all tasks in hand. */
async function extendAll() {
  const held = hand;
  if (held.length === 0) return;
  const rows = await link.call(
    `SELECT owned FROM taskq.extend_tasks_ownership($1, $2::text[], $3::uuid[], $4::float8 * interval '1 second')`,
    [ACTOR, held.map((p) => p.task.id), held.map((p) => p.task.token), LEASE],
  );
  // A row for each pair, in the order of the arrays.
  rows.forEach(({ owned }, i) => {
    if (owned || held[i].outcome) return;
    log(`${held[i].task.id}: lost`);
    held[i].lost = true;
    held[i].interrupt.abort();
  });
}

function begin(task) {
  const performance = { task, interrupt: new AbortController(), lost: false, outcome: undefined };
  hand.push(performance);
  work(performance).catch(fail);
  return performance;
}

/** Performs a task; how it ended is returned with what ends at the same time. */
async function work(performance) {
  const { task, interrupt } = performance;
  log(`${task.id}: try ${task.num_tries}`);
  try {
    performance.outcome = { status_code: 'completed', result: checked(await perform(task, interrupt.signal)) };
  } catch (error) {
    if (interrupt.signal.aborted) {
      // It has not failed: it uses up no try, and need not wait for the back-off.
      const status = 'given back by a worker that stops';
      performance.outcome = { status_code: 'pending', status, count_try: false };
    } else if (error instanceof Rejected) {
      performance.outcome = { status_code: 'aborted', status: printable(error.message) };
    } else {
      // When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
      performance.outcome = { status_code: 'pending', status: printable(String(error)) };
    }
  }
  returnEnded();
}

/** Returns tasks, and takes as many others, with one call; a bad token spoils only its own row. */
async function give(performances) {
  const returns = performances.map((p) => ({ task_id: p.task.id, token: p.task.token, ...p.outcome }));
  try {
    const rows = await link.call(
      `SELECT sqlstate, task_id AS id, token, body, num_tries
         FROM taskq.return_and_own_tasks($1, $2::jsonb, $3, ARRAY[$4], $5::float8 * interval '1 second')`,
      // Text, not an array: of that pg would make one of PostgreSQL's.
      [ACTOR, JSON.stringify(returns), stopping ? 0 : performances.length, ACTION, LEASE],
    );
    // TQ001, TQ003: cancelled, deleted, taken over, or returned by us and only the answer was lost.
    const refused = rows.filter((row) => row.sqlstate);
    for (const row of refused) log(`${row.id}: dropped, it is not ours any more (${row.sqlstate})`);
    return rows.slice(refused.length);
  } catch (error) {
    if (!error.code?.startsWith('22')) throw error;
    if (performances.length > 1) {
      const tasks = [];
      for (const performance of performances) tasks.push(...(await give([performance])));
      return tasks;
    }
    // JSON that the server cannot store, with a \u0000 for one. The next try would have no other.
    const [performance] = performances;
    if (performance.outcome.result === undefined) throw error;
    log(`${performance.task.id}: its result cannot be stored:`, error.message);
    const status = printable(`its result cannot be stored: ${error.message}`);
    performance.outcome = { status_code: 'aborted', status };
    return give(performances);
  }
}

let returning = false;

/** Whatever has ended since the last call goes back with the next, which brings others in its place. */
async function returnEnded() {
  if (returning) return;
  returning = true;
  try {
    let ended;
    while ((ended = hand.filter((p) => p.outcome)).length > 0) {
      const kept = ended.filter((p) => !p.lost);
      const tasks = kept.length > 0 ? await give(kept) : [];
      hand = hand.filter((p) => !ended.includes(p));
      for (const performance of tasks.map(begin)) {
        if (stopping) performance.interrupt.abort(); // since the call was made
      }
      room();
    }
  } finally {
    returning = false;
  }
}

/** The result, which must be JSON. One that is none must not end the worker: the task is rejected. */
function checked(result) {
  try {
    JSON.stringify(result);
    return result;
  } catch (error) {
    throw new Rejected(`its result is no JSON: ${error.message}`);
  }
}

/** What a text of PostgreSQL can hold. */
const printable = (text) => text.replaceAll('\0', '');

function stop() {
  stopping = true;
  giveUpAt = Date.now() + (GRACE + 5) * 1000;
  room();
}

async function main() {
  process.on('SIGTERM', stop).on('SIGINT', stop);
  let beaten; // the last heartbeat
  const heartbeat = setInterval(() => {
    beaten = extendAll().catch((error) => log('no heartbeat:', error.message));
  }, (LEASE * 1000) / 3);
  while (!stopping) {
    if (hand.length >= TASKS) {
      await new Promise((resolve) => (room = resolve));
      continue;
    }
    (await own(TASKS - hand.length)).forEach(begin);
  }
  // The tasks in hand end within the grace, or are stopped.
  const grace = setTimeout(() => hand.forEach((p) => p.interrupt.abort()), Math.max(0, giveUpAt - 5000 - Date.now()));
  while (hand.length > 0) await new Promise((resolve) => (room = resolve));
  clearTimeout(grace);
  clearInterval(heartbeat);
  await beaten; // one that is under way would open its connection again
  await Promise.all([waiter.client?.end(), link.client?.end()]);
  log('stopped');
}

function fail(error) {
  log(error);
  process.exit(1);
}

main().catch(fail);
