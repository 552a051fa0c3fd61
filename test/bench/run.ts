/**
 * Runs every benchmark, one after the other, each as a program of its own, and prints all figures in one table.
 * Arguments are names of benchmarks; without any, all run. Exits 1 when one is over its bar or broke.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import Table from 'cli-table3'
import type { Figure } from './support.ts'

const all = [
  ...['lease-ready', 'noop-trial', 'exec', 'tunnel', 'audit', 'audit-query', 'latency'],
  ...['leases-100', 'harness-start', 'artifacts', 'neighbours', 'report', 'pty'],
]

const wanted = process.argv.slice(2)
const unknown = wanted.filter((name) => !all.includes(name))
if (unknown.length > 0) {
  console.error(`no benchmark ${unknown.join(', ')}; there are ${all.join(', ')}`)
  process.exit(64)
}

const figures: Figure[] = []
const broken: string[] = []
for (const name of wanted.length > 0 ? wanted : all) {
  const file = fileURLToPath(new URL(`${name}.ts`, import.meta.url))
  const child = fork(file, { execArgv: ['--no-warnings'] })
  let told = false
  child.on('message', (message: { figures: Figure[] }) => {
    told = true
    figures.push(...message.figures)
  })
  await once(child, 'close')
  if (!told) broken.push(name)
  console.log('')
}

const table = new Table({
  head: ['benchmark', 'what', 'measured', 'bar', ''],
  style: { head: [], border: [] },
})
for (const { bench, what, measured, bar, ok } of figures)
  table.push([bench, what, measured, bar, ok === null ? '' : ok ? 'PASS' : 'OVER'])
console.log(table.toString())
for (const name of broken) console.log(`${name} broke; its words are above`)
const over = figures.filter(({ ok }) => ok === false).length
console.log(`${figures.filter(({ ok }) => ok === true).length} bars held, ${over} not`)
process.exit(over === 0 && broken.length === 0 ? 0 : 1)
