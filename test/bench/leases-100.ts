/**
 * A hundred sealed leases at once: how long they take to open, what the daemon holds for them, and what it does while
 * nothing happens. Then the daemon is killed as the kernel would, with fifty of them left, and started again: all must
 * be its own again.
 */
import { readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { TestDaemon } from '../support/daemon.ts'
import { bench, benchEngine, cpuMs, option, short, timed } from './support.ts'

const memoryBarMb = 400
const cpuBarPercent = 5
const restartBarSeconds = 5
const abreast = 4

await bench('leases-100', async (report) => {
  await using engine = await benchEngine()
  await using daemon = await TestDaemon.open(engine.socketPath, { logLevel: 'warn' })
  const { client } = daemon
  const wanted = option('leases', 100)
  const kept = Math.floor(wanted / 2)
  const request = {
    image: engine.images.base,
    resources: { cpus: 0.1, memoryBytes: 64 * 1024 ** 2, pids: 64 },
  }
  const leases: string[] = []
  const opening = await timed(() =>
    abreastOf(abreast, wanted, async () => {
      leases.push((await client.openLease(request)).lease)
    }),
  )
  report.figure(
    `${wanted} leases opened, ${abreast} at a time`,
    `${short(opening.ms / 1000)} s, ${short(opening.ms / wanted)} ms each`,
  )
  report.bar({
    what: `memory of the daemon with ${wanted} leases`,
    value: await residentMb(daemon.pid),
    unit: 'MB',
    atMost: memoryBarMb,
  })
  const seconds = option('idle', 20)
  const before = await cpuMs(daemon.pid)
  await delay(seconds * 1000)
  report.bar({
    what: 'CPU of the daemon while they idle',
    value: ((await cpuMs(daemon.pid)) - before) / 10 / seconds,
    unit: '% of a core',
    atMost: cpuBarPercent,
    from: `over ${seconds} s`,
  })
  const surplus = leases.splice(kept)
  const closing = await timed(() =>
    abreastOf(abreast, surplus.length, async () => {
      await client.closeLease(surplus.pop() ?? '', 'measured')
    }),
  )
  report.figure(`${wanted - kept} leases closed`, `${short(closing.ms / (wanted - kept))} ms each`)

  await daemon.kill()
  const { ms } = await timed(async () => {
    await daemon.start()
    const open = new Set((await client.leases()).map((view) => `${view.lease} ${view.state}`))
    const lost = leases.filter((lease) => !open.has(`${lease} ready`))
    if (lost.length > 0) throw new Error(`${lost.length} leases were not adopted`)
  })
  report.bar({
    what: `restart after SIGKILL with ${kept} leases, all adopted`,
    value: ms / 1000,
    unit: 's',
    atMost: restartBarSeconds,
  })
  const end = await client.exec(leases[0] ?? '', { argv: ['true'] })
  if (JSON.stringify(end.exit) !== '{"code":0}') throw new Error('an adopted lease does not work')
})

/** Runs `work` so many times, a few at a time. */
async function abreastOf(lanes: number, times: number, work: () => Promise<void>): Promise<void> {
  let left = times
  const lane = async (): Promise<void> => {
    while (left > 0) {
      left -= 1
      await work()
    }
  }
  await Promise.all(Array.from({ length: lanes }, lane))
}

async function residentMb(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024
}
