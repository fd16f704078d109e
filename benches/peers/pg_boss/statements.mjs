// Runs pg-boss' own client against a new database: it migrates it, makes a queue, and sends, fetches and completes some
// jobs, and what it sends is what is measured.
import { batch, load, statement } from '../record.mjs'

const { PgBoss } = await load('pg-boss/dist/index.js')
const { PGHOST: host, PGUSER: user, PGDATABASE: database } = process.env
// Nothing of its upkeep: what is measured is the client's calls.
const boss = new PgBoss({ host, user, database, max: 1, supervise: false, schedule: false })
boss.on('error', error => { throw error })
await boss.start()
await boss.createQueue('work')

const data = { body: 'x'.repeat(100) }
await statement('send', /INSERT INTO/, () => boss.send('work', data))
await statement('insert', /INSERT INTO/, () => boss.insert('work', Array(batch).fill({ data })))

// What was fetched has to reach the client in one row.
const inOneRow = text => 'WITH fetched AS (' + text + ')\nSELECT array_agg(id) AS ids FROM fetched'
const one = await statement('fetch_one', /SKIP LOCKED/, () => boss.fetch('work'))
await statement('complete', /completed_on/, () => boss.complete('work', one.map(job => job.id)))
const many = await statement('fetch_many', /SKIP LOCKED/, () => boss.fetch('work', { batchSize: batch }), inOneRow)
await boss.complete('work', many.map(job => job.id))

// An event that a queue subscribes to: each publication is a job in that queue.
await boss.createQueue('resumed')
await boss.subscribe('approved', 'resumed')
await statement('publish', /INSERT INTO/, () => boss.publish('approved', data))
const resumed = await statement('fetch_resumed', /SKIP LOCKED/, () => boss.fetch('resumed'))
await boss.complete('resumed', resumed.map(job => job.id))
await boss.stop({ graceful: false })
