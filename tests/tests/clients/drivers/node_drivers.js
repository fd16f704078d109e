// What docs/clients.md says of pg, statement by statement. PGDATABASE says where.
'use strict';

const assert = require('node:assert');
const { Client } = require('pg');

async function main() {
  const db = new Client();
  await db.connect();
  const rows = async (text, values) => (await db.query(text, values)).rows;
  // An array in an argument is an array of PostgreSQL's: JSON arrays go as their text.
  const tasks = [{ id: 'a', action: 'x', body: { n: 1 } }, { id: 'b', action: 'x' }];
  assert.strictEqual((await rows('SELECT taskq.insert_tasks($1)', [JSON.stringify(tasks)])).length, 2);
  await assert.rejects(rows('SELECT taskq.insert_tasks($1)', [tasks]), { code: '22P02' });
  // Objects go as JSON by themselves.
  const [{ id }] = await rows('SELECT taskq.insert_task($1, $2, metadata => $3) AS id', ['c', 'x', { trace: 1 }]);
  assert.strictEqual(id, 'c');
  // Arrays and numbers need no cast.
  const [{ n }] = await rows('SELECT taskq.add_dependencies($1, $2) AS n', [['a'], ['b']]);
  assert.strictEqual(n, '1', 'a bigint comes as text');
  const [grant] = await rows('SELECT task_id, token FROM taskq.own_tasks($1, $2, $3, $4)', ['ann', 1, ['x'], '1 minute']);
  assert.strictEqual(grant.task_id, 'a');
  await rows('SELECT taskq.report_status($1, $2, progress => $3)', ['a', grant.token, 0.1]);
  const [{ progress }] = await rows("SELECT progress FROM taskq.tasks WHERE id = 'a'");
  assert.strictEqual(progress, 0.1);
  const [{ code }] = await rows('SELECT taskq.return_task($1, $2, result => $3) AS code', ['a', grant.token, JSON.stringify([1])]);
  assert.strictEqual(code, 'completed');
  // The SQLSTATE is error.code.
  await assert.rejects(rows('SELECT taskq.return_task($1, $2)', ['a', grant.token]), { code: 'TQ001' });
  assert.deepStrictEqual(await rows("CALL taskq.wait_for_tasks($1, '0', NULL)", [['a']]), [{ num_settled: 1 }]);
  // Encoded twice, it is no array, and the hint says so.
  const twice = JSON.stringify(JSON.stringify(tasks));
  await assert.rejects(rows('SELECT taskq.insert_tasks($1)', [twice]), (error) => /twice/.test(error.hint));
  await db.end();
  console.log('fine');
}

main();
