/**
 * Searching ten million audit events in the logs of a thousand closed leases (`--events`, `--leases`), through the API
 * of the daemon as an auditor asks it. The logs are copies of one that was written by AuditLog, under ids of their own;
 * their hashes are the copied ones, which a search doesn't look at. Then what checking a log costs, and a flood of equal
 * denials.
 */
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { aggregateRules } from '../../daemon/egress/audit-aggregate.ts'
import { checkAudit } from '../../daemon/egress/audit-check.ts'
import { closingFile } from '../../daemon/egress/audit-closing.ts'
import { AuditLog } from '../../daemon/egress/audit-log.ts'
import { Journal } from '../../daemon/lease/journal.ts'
import { createLogger } from '../../daemon/logger.ts'
import type { AuditQuery } from '../../daemon/protocol/audit.ts'
import { DaemonClient } from '../../daemon/protocol/client.ts'
import { addAuditRoutes } from '../../daemon/server/audit-routes.ts'
import { Router } from '../../daemon/server/router.ts'
import type { AuditRecord } from '../../policy/audit-event.ts'
import { bench, median, option, quantile, short, timed } from './support.ts'

const barMs = 200
const rounds = 15
const idOf = (n: number): string => `lease${String(n).padStart(7, '0')}`
const trialOf = (n: number): string => `trial${String(n).padStart(7, '0')}`

/** The n-th thing that an agent of the bench tries: names, addresses, tunnels with their ends. */
function attempt(n: number): AuditRecord {
  const host = `host${n % 997}.denied.example`
  switch (n % 4) {
    case 0:
      return {
        kind: 'decision',
        protocol: 'connect',
        action: 'allow',
        reason: 'allowed_host',
        host: 'files.allowed.example',
        port: 443,
        connection: n,
        detail: 'dialed 198.51.100.7',
      }
    case 1:
      return {
        kind: 'close',
        protocol: 'connect',
        action: 'none',
        reason: null,
        host: 'files.allowed.example',
        port: 443,
        connection: n,
        bytesUp: 1_000,
        bytesDown: 50_000,
        detail: 'ended',
      }
    case 2:
      return {
        kind: 'decision',
        protocol: 'dns',
        action: 'deny',
        reason: 'dns_query',
        host,
        port: 53,
        detail: 'A',
      }
    default:
      return {
        kind: 'census',
        protocol: 'tcp',
        action: 'deny',
        reason: 'direct_tcp',
        address: `198.51.100.${n % 251}`,
        port: 1 + (n % 60_000),
        count: 3,
      }
  }
}

await bench('audit-query', async (report) => {
  await using undo = new AsyncDisposableStack()
  const directory = await mkdtemp(path.join(os.tmpdir(), 'cbb-'))
  undo.defer(() => rm(directory, { recursive: true, force: true }))
  const leases = option('leases', 1_000)
  const each = Math.ceil(option('events', 10_000_000) / leases)
  const audit = path.join(directory, 'audit')
  const closed = path.join(directory, 'leases', 'closed')
  for (const each of [audit, closed]) await mkdir(each, { recursive: true })
  const fileOf = (lease: string): string => path.join(audit, `${lease}.jsonl`)

  const template = await AuditLog.open(path.join(directory, 'template.jsonl'), {
    lease: idOf(0),
    trial: trialOf(0),
    policy: 'a'.repeat(64),
  })
  for (let n = 0; n < each; n += 1) {
    template.append(n === each >> 1 ? { ...attempt(2), host: 'once-here.example' } : attempt(n))
    if (n % 500 === 0) await new Promise((turn) => setImmediate(turn))
  }
  await template.close()
  const [log, noted] = await Promise.all(
    [template.file, closingFile(template.file)].map((file) => readFile(file, 'utf8')),
  )
  const index: string[] = []
  for (let n = 0; n < leases; n += 1) {
    const rename = (text = ''): string =>
      text
        .replaceAll(idOf(0), idOf(n))
        .replaceAll(trialOf(0), trialOf(n))
        // A name that one lease alone asked for.
        .replaceAll(
          'once-here.example',
          n === leases >> 1 ? 'once-here.example' : 'once-else.example',
        )
    await writeFile(fileOf(idOf(n)), rename(log))
    await writeFile(closingFile(fileOf(idOf(n))), rename(noted))
    await writeFile(path.join(closed, `${idOf(n)}.json`), '{}')
    const createdAt = new Date(Date.UTC(2026, 0, 1) + n * 1_000).toISOString()
    index.push(`${JSON.stringify({ lease: idOf(n), trial: trialOf(n), createdAt })}\n`)
  }
  await writeFile(path.join(directory, 'leases', 'trials.jsonl'), index.join(''))
  const { size } = await stat(template.file)
  console.log(`  ${leases} logs of ${each} events, ${short((size * leases) / 1e9)} GB`)

  const start = await timed(() => Journal.open(path.join(directory, 'leases')))
  report.figure(
    'the daemon knows which lease is of which trial',
    `${short(start.ms)} ms after its start`,
  )
  const router = new Router(createLogger({ level: 'silent' }))
  addAuditRoutes(router, {
    leases: { find: () => undefined },
    journal: start.value,
    directory: audit,
  })
  const server = router.createServer()
  const socket = path.join(directory, 'daemon.sock')
  server.listen(socket)
  await once(server, 'listening')
  undo.defer(() => void server.close())
  const client = undo.use(new DaemonClient(socket))
  const ask = async (query: AuditQuery): Promise<{ ms: number; count: number }> => {
    const { ms, value } = await timed(async () => {
      let count = 0
      for await (const _event of client.auditQuery(query)) count += 1
      return count
    })
    return { ms, count: value }
  }

  const byTrial: number[] = []
  for (let n = 0; n < rounds; n += 1) {
    const { ms, count } = await ask({ trial: trialOf(Math.floor(((n + 0.5) * leases) / rounds)) })
    if (count !== each) throw new Error(`${count} events of a trial that has ${each}`)
    byTrial.push(ms)
  }
  report.bar({
    what: 'every event of a trial, in the hands of the client',
    value: median(byTrial),
    unit: 'ms',
    atMost: barMs,
    from: `${each} events; p90 ${short(quantile(byTrial, 0.9))} ms`,
  })
  const denials: number[] = []
  for (let n = 0; n < rounds; n += 1)
    denials.push((await ask({ trial: trialOf((n * 61) % leases), reason: 'dns_query' })).ms)
  report.bar({
    what: 'those of a trial with one reason',
    value: median(denials),
    unit: 'ms',
    atMost: barMs,
  })
  for (const [what, query, expected] of [
    ['a name that one lease asked for, in all', { host: 'once-here.example' }, 1],
    ['a reason that none has, in all', { reason: 'tool_denied' }, 0],
    ['a name that every lease asked for once, in all', { host: 'once-else.example' }, leases - 1],
  ] as const) {
    const { ms, count } = await ask(query)
    if (count !== expected) throw new Error(`${what}: ${count} events, not ${expected}`)
    report.figure(what, `${short(ms)} ms, ${count} found`)
  }

  const check = await timed(() => checkAudit(template.file, { lease: idOf(0), proof: [] }))
  if (check.value[0]?.ok !== true) throw new Error('the log is not whole')
  report.figure('checking a log', `${short((each / check.ms) * 1000)} events a second`)

  const flood = await AuditLog.open(fileOf('flood'), {
    lease: 'flood',
    trial: null,
    aggregate: aggregateRules,
  })
  const floods = 1_000_000
  const { ms } = await timed(async () => {
    for (let n = 0; n < floods; n += 1) {
      flood.append({
        kind: 'decision',
        protocol: 'connect',
        action: 'deny',
        reason: 'not_allowed_host',
        host: `${n % 100}.example`,
        port: 443,
      })
      if (n % 1_000 === 0) await new Promise((turn) => setImmediate(turn))
    }
    await flood.close()
  })
  const { denied, events } = flood.totals()
  report.bar({
    what: 'a flood of equal denials: not counted',
    value: floods - denied,
    unit: '',
    atMost: 0,
  })
  report.figure('the same', `${short((floods / ms) * 1000)}/s, ${events} lines of ${floods}`)
})
