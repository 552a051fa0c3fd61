/**
 * `closedbook report` over 10,000 results made up from a seed, end to end: the command is started as a person starts it,
 * reads every file, checks each digest against its record, and prints. Each form of the report on its own.
 */
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { syntheticJob } from '../runner/support/synthetic-job.ts'
import { bench, median, option, root, short, spread, timed } from './support.ts'

const run = promisify(execFile)
const rounds = option('n', 5)
const limitMs = 2000

await bench('report', async (report) => {
  const dir = await mkdtemp(path.join(os.tmpdir(), 'closedbook-report-'))
  try {
    const { results } = syntheticJob(dir, {
      tasks: 500,
      runs: 4,
      configurations: ['a', 'b', 'c', 'd', 'e'].map((name, at) => ({
        name: `configuration-${name}`,
        chance: 0.3 + at / 10,
      })),
      tests: 60,
    })
    const [first] = await readdir(path.join(dir, 'trials'))
    const { size } = await stat(path.join(dir, 'trials', first ?? '', 'result.json'))
    report.figure('results', `${results.length} of about ${short(size / 1024)} KiB`)
    const forms: readonly (readonly [string, readonly string[]])[] = [
      ['table', [dir]],
      ['--json', [dir, '--json']],
      ['csv', [dir, '--format', 'csv']],
      ['html', [dir, '-o', path.join(dir, 'page.html')]],
      ['--from-files', ['--from-files', dir]],
    ]
    for (const [name, args] of forms) {
      const times: number[] = []
      for (let round = 0; round < rounds; round++) times.push((await timed(() => cli(args))).ms)
      report.bar({
        what: `closedbook report, ${name}`,
        value: median(times),
        unit: 'ms',
        atMost: limitMs,
        from: spread(times),
      })
    }
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
})

function cli(args: readonly string[]) {
  const program = path.join(root, 'runner', 'bin', 'closedbook.mjs')
  return run(process.execPath, ['--no-warnings', program, 'report', ...args], {
    maxBuffer: 256 * 1024 ** 2,
    env: { ...process.env, NO_COLOR: '1' },
  })
}
