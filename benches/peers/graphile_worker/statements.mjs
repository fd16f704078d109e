// Runs graphile-worker's own client against a new database: it migrates it, and adds, gets and completes some jobs,
// and what it sends is what is measured.
import { batch, pg, load, statement } from '../record.mjs'

const { makeWorkerUtils, Logger } = await load('graphile-worker/dist/index.js')
const { getUtilsAndReleasersFromOptions } = await load('graphile-worker/dist/lib.js')
const { batchGetJobs } = await load('graphile-worker/dist/sql/getJobs.js')
const { batchCompleteJobs } = await load('graphile-worker/dist/sql/completeJobs.js')

const pgPool = new pg.Pool({ max: 1 })
const logger = new Logger(() => () => {})
const utils = await makeWorkerUtils({ pgPool, logger })
await utils.migrate()

const body = { body: 'x'.repeat(100) }
await statement('add_job', /add_job\(/, () => utils.addJob('work', body))
await statement('add_jobs', /add_jobs\(/, () => utils.addJobs(Array(batch).fill({ identifier: 'work', payload: body })))

const [shared] = await getUtilsAndReleasersFromOptions({ pgPool, logger })
const { withPgClient } = shared
const get = count => batchGetJobs(shared, withPgClient, { work: () => {} }, 'worker', null, count)
const complete = jobs => batchCompleteJobs(shared, withPgClient, 'worker', jobs)

// What was got has to reach the client in one row: then the last statement of the WITH becomes one more part of it.
const inOneRow = text => text.replace(/\)\s*update (\S+_private_jobs as jobs\b[^]*returning) \*$/,
  '),\nfetched as (update $1 jobs.*)\nselect array_agg(id) as ids from fetched')
const one = await statement('get_job', /skip locked/, () => get(1))
await statement('complete_job', /delete from/, () => complete(one))
const many = await statement('get_jobs', /skip locked/, () => get(batch), inOneRow)
await statement('complete_jobs', /delete from/, () => complete(many))
await utils.release()
await pgPool.end()
