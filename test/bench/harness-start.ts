/**
 * How long mini-SWE-agent takes to come to its first step, in its own sandbox: the import of its command and of its
 * model client, which is nearly all of it. No bar: it is what a trial waits for while its sandbox is sealed.
 */
import { TestDaemon } from '../support/daemon.ts'
import { miniCommand } from '../../runner/harness/mini-swe-agent.ts'
import { bench, benchEngine, option, spread } from './support.ts'

const program = 'import minisweagent.run.mini, minisweagent.models.litellm_model'
const script = `TIMEFORMAT='%R %U %S'; time "$0" -c '${program}' </dev/null >/dev/null 2>&1`

await bench('harness-start', async (report) => {
  await using engine = await benchEngine(['harness'])
  await using daemon = await TestDaemon.open(engine.socketPath)
  const { lease } = await daemon.client.openLease({
    image: engine.images.harness,
    resources: { memoryBytes: 1024 ** 3 },
  })
  const { argv, env, workdir } = miniCommand({
    attempts: undefined,
    upstream: { kind: 'replay', recordings: 'none' },
  })
  const python = (argv[0] ?? '').replace(/mini$/, 'python')
  const wall: number[] = []
  const cpu: number[] = []
  const turns = option('n', 5)
  for (let turn = 0; turn < turns + 1; turn++) {
    const output: Buffer[] = []
    const end = await daemon.client.exec(
      lease,
      { argv: ['bash', '-c', script, python], env: { ...env }, workdir, merged: true },
      { onStdout: (_offset, bytes) => void output.push(bytes) },
    )
    const text = Buffer.concat(output).toString()
    const [real = Number.NaN, user = Number.NaN, system = Number.NaN] = text.split(' ').map(Number)
    if (JSON.stringify(end.exit) !== '{"code":0}' || Number.isNaN(real + user + system))
      throw new Error(`it did not start: ${text}`)
    // The first reads the files from the disk.
    if (turn === 0) continue
    wall.push(real)
    cpu.push(user + system)
  }
  report.figure('start of mini-SWE-agent, time', spread(wall, 's'))
  report.figure('start of mini-SWE-agent, CPU', spread(cpu, 's'))
})
