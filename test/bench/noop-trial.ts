/**
 * A whole no-op trial of a trivial task, as a person starts it: the command itself, lease, proof, freeze, second proof,
 * collection, two fresh verifiers, record. One alone, and eight at once; the time of the command, shared by its trials.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { resultSchema } from '../../runner/result.ts'
import { TestDaemon } from '../support/daemon.ts'
import { bench, benchEngine, median, option, short, spread, timed } from './support.ts'
import { writeTrivialTask } from './trivial-task.ts'

const barSeconds = 2.6
const abreast = 8

interface Answer {
  readonly trials: readonly { verdict: string; reason: { message: string }; result: string }[]
}

await bench('noop-trial', async (report) => {
  await using undo = new AsyncDisposableStack()
  const scratch = await mkdtemp(path.join(os.tmpdir(), 'cbb-'))
  undo.defer(() => rm(scratch, { recursive: true, force: true }))
  const engine = undo.use(await benchEngine())
  const daemon = undo.use(await TestDaemon.open(engine.socketPath))
  const task = await writeTrivialTask(path.join(scratch, 'task'))
  let jobs = 0

  const run = async (trials: number): Promise<{ ms: number; phases: Record<string, number>[] }> => {
    const out = path.join(scratch, `job${(jobs += 1)}`)
    const { ms, value } = await timed(() =>
      daemon.json([
        ...['run', '--task', task, '--harness', 'noop', '--out', out],
        ...['--runs', String(trials), '--concurrency', String(trials)],
      ]),
    )
    const answer = value as Answer
    const wrong = answer.trials.find(({ verdict }) => verdict !== 'failed')
    if (answer.trials.length !== trials || wrong !== undefined)
      throw new Error(`a no-op trial did not end failed: ${wrong?.reason.message ?? 'no trial'}`)
    const phases: Record<string, number>[] = []
    for (const { result } of answer.trials) {
      const { phasesMs } = resultSchema.parse(JSON.parse(await readFile(result, 'utf8')))
      phases.push(phasesMs)
    }
    return { ms, phases }
  }

  // Builds the image.
  await run(1)
  const turns = option('n', 5)
  const alone: number[] = []
  const phases = new Map<string, number[]>()
  for (let turn = 0; turn < turns; turn++) {
    const {
      ms,
      phases: [first = {}],
    } = await run(1)
    alone.push(ms)
    for (const [phase, took] of Object.entries(first))
      phases.set(phase, [...(phases.get(phase) ?? []), took])
  }
  report.figure('the command, one trial', spread(alone))
  for (const [phase, took] of phases)
    if (phase !== 'queue') report.figure(`  ${phase}`, spread(took))
  report.bar({
    what: 'one no-op trial',
    value: median(alone) / 1000,
    unit: 's',
    atMost: barSeconds,
    from: `${turns} turns`,
  })
  const together: number[] = []
  for (let turn = 0; turn < Math.ceil(turns / 2); turn++) together.push((await run(abreast)).ms)
  report.bar({
    what: `${abreast} no-op trials at once, each`,
    value: median(together) / abreast / 1000,
    unit: 's',
    atMost: barSeconds,
    from: `${short(median(together) / 1000)} s for all`,
  })
})
