/**
 * `npm run quickstart`, after set-up: an engine and a daemon of its own under .closedbook/, the images, then the sample
 * benchmark: two tasks, two runs each, by unmodified mini-SWE-agent against recorded exchanges. It stops what it
 * started, whatever happened, and leaves images and results, so that a second call is quick.
 */
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { DaemonClient } from '../daemon/protocol/client.ts'
import { ClosedbookError } from '../daemon/protocol/errors.ts'
import { Interrupted } from './commands/context.ts'
import { Progress } from './commands/progress.ts'
import { loadRunnerConfig } from './config.ts'
import { exitCode, exitCodeOf } from './exit-codes.ts'
import { buildOurImages } from './host/images.ts'
import { down, up } from './host/services.ts'
import { readJob } from './job/read-job.ts'
import { startJob } from './job/start-job.ts'
import { terminalWidth } from './report/fit.ts'
import { renderReport } from './report/render.ts'
import { clusterRuns, stopCluster } from './store/cluster.ts'
import { durationText, painter, wantsColor } from './report/terminal.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const tasks = ['tool-call-detector-orrery', 'reasoning-tags']
const runs = 2
const concurrency = 2

const began = Number(process.env['CLOSEDBOOK_QUICKSTART_STARTED'] ?? Date.now())
const paint = painter(wantsColor(process.stderr, process.env))
const say = (text: string): void => void process.stderr.write(`· ${text}\n`)

async function main(): Promise<number> {
  const interrupted = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.once(name, () => interrupted.abort(new Interrupted(name)))
  const { signal } = interrupted
  const config = await loadRunnerConfig({
    stateDir: process.env['CLOSEDBOOK_STATE_DIR'] ?? path.join(root, '.closedbook'),
  })
  const hadStore = await clusterRuns(config.stateDir)
  const { health, started } = await up({ config, say })
  try {
    await using client = new DaemonClient(config.socket)
    say(`engine ${health.engine}, daemon ${health.version}, state in ${config.stateDir}`)
    await buildOurImages(['harness', 'sglang-cpu'], {
      client,
      stateDir: config.stateDir,
      say,
      signal,
    })
    say(`${tasks.length} tasks x ${runs} runs by mini-SWE-agent, model replayed`)
    let jobDir = ''
    {
      using progress = new Progress()
      await startJob(
        {
          name: 'quickstart',
          runs,
          out: null,
          sources: {
            schema: 'closedbook.sources/1',
            taskDirs: tasks.map((task) => path.join(root, 'images', 'tasks', task)),
            configurations: [
              { kind: 'file', path: path.join(root, 'images', 'replay.yaml'), harness: null },
            ],
            concurrency,
            // whether or not this host's images are those that they were qualified with
            require: 'any',
          },
        },
        {
          config,
          client,
          signal,
          watch: progress,
          say: (text) => progress.say(`· ${text}`),
          onPlan: (plan, directory) => {
            jobDir = directory
            progress.job(plan, directory)
          },
        },
      )
    }
    const { report } = await readJob(jobDir)
    process.stdout.write(
      `\n${renderReport(report, { color: wantsColor(process.stdout, process.env), width: terminalWidth(process.stdout) })}`,
    )
    const stateDir = path.relative(process.cwd(), config.stateDir) || '.'
    const again = `npx closedbook --state-dir ${stateDir}`
    const trial = report.trials[0]?.trial ?? 'TRIAL'
    process.stdout.write(
      `\n${paint('bold', 'Written')}  ${jobDir}\n` +
        `  results    trials/*/result.json\n` +
        `  evidence   trials/*/executions/*: patch.diff, steps.jsonl, egress.jsonl, trajectory.json, test reports\n` +
        `  look again ${again} report latest\n` +
        `             ${again} logs ${trial}\n` +
        `             ${again} audit ${trial}\n` +
        `  go on      export CLOSEDBOOK_STATE_DIR=${config.stateDir}; npx closedbook up\n`,
    )
    return report.complete ? exitCode.ok : exitCode.failure
  } finally {
    if (started.daemon || started.engine) await down(config)
    else if (!hadStore) await stopCluster(config.stateDir)
    say(`stopped what was started; ${durationText(Date.now() - began)} in all`)
  }
}

try {
  process.exitCode = await main()
} catch (error) {
  const known = error instanceof ClosedbookError || error instanceof Interrupted
  process.stderr.write(`quickstart: ${known ? error.message : String((error as Error).stack)}\n`)
  process.exitCode = error instanceof Interrupted ? exitCode.interrupted : exitCodeOf(error)
}
