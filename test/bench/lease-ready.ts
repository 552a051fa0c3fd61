/**
 * A sealed and proven sandbox through the lease API, against the plain container that it replaces: `docker run -d` and
 * `docker exec … true` by the command line, on the same engine and image. In turns; closing is not measured.
 */
import { TestDaemon } from '../support/daemon.ts'
import { bench, benchEngine, median, option, short, spread, timed } from './support.ts'

const bar = 1.5

await bench('lease-ready', async (report) => {
  await using engine = await benchEngine()
  await using daemon = await TestDaemon.open(engine.socketPath)
  const image = engine.images.base
  const lease: number[] = []
  const plain: number[] = []
  const phases = new Map<string, number[]>()

  const openLease = async (): Promise<void> => {
    const { ms, value } = await timed(() => daemon.client.openLease({ image }))
    lease.push(ms)
    for (const [phase, took] of Object.entries(value.timingsMs))
      phases.set(phase, [...(phases.get(phase) ?? []), took])
    await daemon.client.closeLease(value.lease, 'measured')
  }
  const runPlain = async (): Promise<void> => {
    const { ms, value } = await timed(async () => {
      const id = await engine.docker('run', '-d', '--network', 'none', image, 'sleep', 'infinity')
      await engine.docker('exec', id, 'true')
      return id
    })
    plain.push(ms)
    await engine.docker('rm', '-f', value)
  }

  const turns = option('n', 12)
  await openLease()
  await runPlain()
  lease.length = plain.length = 0
  phases.clear()
  for (let turn = 0; turn < turns; turn++)
    for (const side of turn % 2 === 0 ? [openLease, runPlain] : [runPlain, openLease]) await side()

  report.figure('lease, sealed and proven', spread(lease))
  report.figure('docker run -d + docker exec true', spread(plain))
  for (const [phase, took] of phases) report.figure(`  ${phase}`, spread(took))
  report.bar({
    what: 'lease ready against docker run -d + docker exec true',
    value: median(lease) / median(plain),
    unit: 'x',
    atMost: bar,
    from: `${short(median(lease))} ms against ${short(median(plain))} ms, ${turns} turns`,
  })
})
