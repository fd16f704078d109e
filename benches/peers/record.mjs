// For peers whose clients use the package `pg`: what a client sends to the server while something runs.
import { createRequire } from 'node:module'
import { writeFileSync, mkdirSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

export const folder = process.argv[2]
// How many tasks a call takes: the clients write that into the statement.
export const batch = Number(process.env.BATCH)
const require = createRequire(pathToFileURL(folder + '/package.json'))
export const pg = require('pg')
export const load = path => import(pathToFileURL(`${folder}/node_modules/${path}`).href)

let heard = []
const query = pg.Client.prototype.query
pg.Client.prototype.query = function (config, values, ...rest) {
  const text = typeof config === 'string' ? config : config.text
  if (text) heard.push({ text, values: config.values ?? values })
  return query.call(this, config, values, ...rest)
}

// The one statement with `sign` in it that was sent while `action` ran; written down under a name.
mkdirSync(folder + '/statements', { recursive: true })
export async function statement (name, sign, action, change = text => text) {
  heard = []
  const result = await action()
  const [found, ...more] = heard.filter(({ text }) => sign.test(text))
  if (!found || more.length) throw new Error(`${name}: ${found ? more.length + 1 : 'no'} statements like ${sign}`)
  writeFileSync(`${folder}/statements/${name}.sql`, change(found.text) + '\n')
  return result
}
