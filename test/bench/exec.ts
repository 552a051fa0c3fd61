/**
 * Running `true` in a sandbox: through the lease API and through the harness's docker shim, against `docker exec` by
 * the command line into the very same container. In turns. The two programs are timed by the same shell, each on its
 * side; the API by its caller.
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { promisify } from 'node:util'
import { miniPaths } from '../../runner/harness/mini-swe-agent.ts'
import { TestDaemon } from '../support/daemon.ts'
import { bench, benchEngine, median, option, short, spread, timed } from './support.ts'

const run = promisify(execFile)
const apiBar = 1
const shimBar = 1.5

/** Prints the microseconds that the command takes. */
const timing = (command: string): string =>
  `a=$EPOCHREALTIME; ${command} || exit 1; b=$EPOCHREALTIME; echo $(( \${b/.} - \${a/.} ))`

await bench('exec', async (report) => {
  await using engine = await benchEngine(['harness'])
  await using daemon = await TestDaemon.open(engine.socketPath)
  const { client } = daemon
  const id = `bench${randomBytes(6).toString('hex')}`
  const [task, harness] = await Promise.all([
    client.openLease({ id, image: engine.images.base }),
    client.openLease({ image: engine.images.harness, execInto: id, hostname: 'harness' }),
  ])
  const api: number[] = []
  const shim: number[] = []
  const cli: number[] = []

  const byApi = async (): Promise<void> => {
    const { ms, value } = await timed(() => client.exec(task.lease, { argv: ['true'] }))
    if (JSON.stringify(value.exit) !== '{"code":0}') throw new Error('the command failed')
    api.push(ms)
  }
  const byShim = async (): Promise<void> => {
    const output: Buffer[] = []
    await client.exec(
      harness.lease,
      { argv: ['bash', '-c', timing(`${miniPaths.shim} exec ${id} true`)] },
      { onStdout: (_offset, bytes) => void output.push(bytes) },
    )
    shim.push(milliseconds(Buffer.concat(output).toString()))
  }
  const byCli = async (): Promise<void> => {
    const command = timing(`docker -H unix://${engine.socketPath} exec cb-${task.lease} true`)
    cli.push(milliseconds((await run('bash', ['-c', command])).stdout))
  }

  const sides = [byApi, byShim, byCli]
  for (const side of sides) await side()
  api.length = shim.length = cli.length = 0
  const turns = option('n', 30)
  for (let turn = 0; turn < turns; turn++)
    for (let at = 0; at < sides.length; at++) await sides[(turn + at) % sides.length]?.()

  report.figure('lease API', spread(api))
  report.figure('docker shim in the harness sandbox', spread(shim))
  report.figure('docker exec', spread(cli))
  const from = (ours: number[]): string =>
    `${short(median(ours))} ms against ${short(median(cli))} ms, ${turns} turns`
  report.bar({
    what: 'exec through the API against the docker exec CLI',
    value: median(api) / median(cli),
    unit: 'x',
    atMost: apiBar,
    from: from(api),
  })
  report.bar({
    what: 'exec through the shim against the docker exec CLI',
    value: median(shim) / median(cli),
    unit: 'x',
    atMost: shimBar,
    from: from(shim),
  })
})

function milliseconds(text: string): number {
  const micros = Number(text.trim())
  if (text.trim() === '' || !Number.isFinite(micros))
    throw new Error(`the command failed: ${JSON.stringify(text)}`)
  return micros / 1000
}
