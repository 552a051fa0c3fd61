/**
 * Decisions into the audit log of one lease: as many as it takes in a second, and 20,000 a second for some seconds
 * with the event loop kept free for others. Each is decided by the policy first. Then the file is read back: every
 * sequence number must be there, once, in order.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { AuditLog } from '../../daemon/egress/audit-log.ts'
import { readAudit } from '../../daemon/egress/read-audit.ts'
import { decide } from '../../policy/decide.ts'
import { parseAuthority } from '../../policy/host.ts'
import { policySchema } from '../../policy/policy.ts'
import { bench, option, short, timed } from './support.ts'

const barPerSecond = 20_000
const burst = 200_000
const tickMs = 10

await bench('audit', async (report) => {
  await using undo = new AsyncDisposableStack()
  const directory = await mkdtemp(path.join(os.tmpdir(), 'cbb-'))
  undo.defer(() => rm(directory, { recursive: true, force: true }))
  const policy = policySchema.parse({ version: 1, connect: { allow: ['*.allowed.example'] } })

  let asked = 0
  const decideOne = (log: AuditLog): void => {
    asked += 1
    const authority = `host${asked % 1000}.${asked % 3 === 0 ? 'allowed' : 'denied'}.example:443`
    const target = parseAuthority(authority)
    const { action, reason } = decide(policy, {
      kind: 'connect',
      target,
      hostHeader: target,
      fault: null,
    })
    log.append({
      kind: 'decision',
      protocol: 'connect',
      action,
      reason,
      host: target.ok ? target.host : authority,
      port: 443,
      connection: log.nextConnection(),
    })
  }
  const open = (lease: string): Promise<AuditLog> =>
    AuditLog.open(path.join(directory, `${lease}.jsonl`), { lease, trial: null })

  const log = await open('burst')
  const { ms } = await timed(async () => {
    for (let done = 0; done < burst; done += 500) {
      for (let one = 0; one < 500; one++) decideOne(log)
      await new Promise((turn) => setImmediate(turn))
    }
    await log.close()
  })
  report.bar({
    what: 'decisions into one log, to disk',
    value: (burst / ms) * 1000,
    unit: '/s',
    atLeast: barPerSecond,
    from: `${burst} in ${short(ms)} ms`,
  })
  report.bar({ what: 'of these lost', value: burst - (await count(log.file)), unit: '', atMost: 0 })

  const paced = await open('paced')
  const seconds = option('seconds', 5)
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const cpu = process.cpuUsage()
  const started = performance.now()
  let wanted = 0
  while (wanted < seconds * barPerSecond) {
    const due = Math.min(
      seconds * barPerSecond,
      Math.floor(((performance.now() - started) * barPerSecond) / 1000),
    )
    for (; wanted < due; wanted++) decideOne(paced)
    await new Promise((resolve) => setTimeout(resolve, tickMs))
  }
  await paced.close()
  const took = performance.now() - started
  delay.disable()
  const { user, system } = process.cpuUsage(cpu)
  report.figure(
    `${barPerSecond} decisions a second for ${seconds} s`,
    `${short((wanted / took) * 1000)}/s, ${short(((user + system) / 1000 / took) * 100)} % of a core, ` +
      `event loop held up p99 ${short(delay.percentile(99) / 1e6)} ms`,
  )
  report.bar({
    what: 'of these lost',
    value: wanted - (await count(paced.file)),
    unit: '',
    atMost: 0,
  })
})

/** Events in the file; throws where a number is missing, twice or out of order. */
async function count(file: string): Promise<number> {
  let last = 0
  for await (const { seq } of readAudit(file)) {
    if (seq !== last + 1) throw new Error(`event ${seq} follows event ${last}`)
    last = seq
  }
  return last
}
