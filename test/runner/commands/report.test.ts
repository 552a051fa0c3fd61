import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { Scratch } from '../support/scratch.ts'
import { syntheticJob } from '../support/synthetic-job.ts'

const main = fileURLToPath(new URL('../../../runner/main.ts', import.meta.url))

void t.test(
  'the command line gives each form of a report, and says what is wrong with a request',
  async (t) => {
    await using scratch = await Scratch.make()
    const jobs = path.join(scratch.path, 'jobs')
    const dir = path.join(jobs, 'j20250102-030405-abcd')
    mkdirSync(dir, { recursive: true })
    syntheticJob(dir, {
      tasks: 4,
      runs: 2,
      configurations: [
        { name: 'one', chance: 0.5 },
        { name: 'two', chance: 0.5 },
      ],
      change: (result, index) => (index === 0 ? null : result),
    })
    const run = (...args: string[]) => {
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        ['--no-warnings', main, '--jobs-dir', jobs, '--state-dir', scratch.path, ...args],
        { encoding: 'utf8', env: { ...process.env, NO_COLOR: '1', DATABASE_URL: '' } },
      )
      return { status, stdout, stderr }
    }
    const rows: readonly (readonly [readonly string[], number, RegExp])[] = [
      [['report', 'j2025'], 0, /NOT COMPLETE: 15 of 16 planned trials are scored/],
      [
        ['report', '--from-files', dir, '--json'],
        0,
        /^\{"schema":"closedbook\.report\/1","from":"files"/,
      ],
      [['report', dir, '--from-files', dir], 2, /give either jobs or --from-files/],
      [['report', '--from-files', `${jobs}/none*`], 65, /no result\.json is in/],
      [['compare', 'j2025', 'j2025:two'], 2, /say which: j2025:one, j2025:two/],
      [['compare', 'j2025:one', `${dir}:two`, '--format', 'md'], 0, /NOT COMPLETE/],
    ]
    for (const [args, status, said] of rows) {
      const ran = run(...args)
      t.equal(ran.status, status, `${args.join(' ')}: ${ran.stderr}`)
      t.match(ran.stdout + ran.stderr, said)
    }
    const file = path.join(scratch.path, 'out', 'report.html')
    const written = run('report', 'j2025', '-o', file)
    t.match(written, { status: 0, stdout: '', stderr: /NOT COMPLETE[^]*written to/ })
    t.match(readFileSync(file, 'utf8'), /href="\.\/\.\.\/jobs\/j20250102-030405-abcd\/trials\//)
  },
)
