/**
 * Writes the table of docs/probes.md from what the battery found: `node --no-warnings docs/generate-probes.ts TASK…`, where
 * each TASK is a directory with closedbook/probe.json. A column a task; a row a cheat.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { readProbe, type Probe } from '../runner/probe/document.ts'

const page = fileURLToPath(new URL('probes.md', import.meta.url))
const marks = ['<!-- probes: begin -->', '<!-- probes: end -->'] as const

const probes: Probe[] = []
for (const dir of process.argv.slice(2)) {
  const read = await readProbe(dir)
  if (read === null)
    throw new Error(`${dir} has no closedbook/probe.json; run closedbook probe first`)
  probes.push(read.value)
}
if (probes.length === 0) throw new Error('name the directories of the probed tasks')
const names = [...new Set(probes.flatMap(({ cheats }) => cheats.map(({ name }) => name)))]
const cell = (probe: Probe, name: string): string => {
  const found = probe.cheats.find((one) => one.name === name)
  if (found === undefined) return '-'
  const { outcome, verdict, reason, denied } = found
  const blocked = denied > 0 ? `, ${denied} blocked` : ''
  if (outcome === 'untried') return 'not applicable'
  return outcome === 'caught' ? `${verdict}: \`${reason.code}\`${blocked}` : `**${outcome}**`
}
const tries = (name: string): string =>
  probes.flatMap(({ cheats }) => cheats).find((one) => one.name === name)?.tries ?? ''
const short = (task: string): string => task.replace(/^.*\//, '')
const lines = [
  `| cheat | what it tries | ${probes.map(({ task }) => short(task)).join(' | ')} |`,
  `| --- | --- | ${probes.map(() => '---').join(' | ')} |`,
  ...names.map(
    (name) =>
      `| \`${name}\` | ${tries(name)} | ${probes.map((probe) => cell(probe, name)).join(' | ')} |`,
  ),
  ...(['noop', 'oracle'] as const).map(
    (agent) =>
      `| honest ${agent === 'noop' ? 'no-op' : agent} | ${agent === 'noop' ? 'nothing' : 'the reference solution'} | ${probes
        .map((probe) => {
          const one = probe.honest.find((each) => each.agent === agent)
          return one === undefined ? '-' : `${one.verdict}: \`${one.reason.code}\``
        })
        .join(' | ')} |`,
  ),
]
const text = await readFile(page, 'utf8')
const [begin, end] = marks.map((mark) => text.indexOf(mark))
if (begin === undefined || end === undefined || begin < 0 || end < begin)
  throw new Error(`${page} lacks its marks`)
await writeFile(
  page,
  `${text.slice(0, begin + marks[0].length)}\n\n${lines.join('\n')}\n\n${text.slice(end)}`,
)
