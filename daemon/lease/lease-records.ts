/** The logs of a lease: what it tried to reach, and what happened in it. A refusal is told in both. */
import path from 'node:path'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { AuditLog } from '../egress/audit-log.ts'
import type { LeaseRequest } from '../protocol/lease.ts'
import { EventLog } from './event-log.ts'
import type { LeaseDeps } from './lease-deps.ts'
import type { LeaseParts } from './lease-parts.ts'

export const auditFile = (id: string, deps: LeaseDeps): string =>
  path.join(deps.directories.audit, `${id}.jsonl`)

export async function openRecords(
  id: string,
  request: LeaseRequest,
  deps: LeaseDeps,
  undo: AsyncDisposableStack,
): Promise<LeaseParts> {
  const events = undo.use(
    await EventLog.open(id, path.join(deps.directories.events, `${id}.jsonl`)),
  )
  const auditWatchers = new Set<(event: AuditEvent) => void>()
  const audit = undo.use(
    await AuditLog.open(auditFile(id, deps), {
      lease: id,
      trial: request.trial ?? null,
      onEvent: (event) => {
        for (const watcher of auditWatchers) watcher(event)
      },
    }),
  )
  auditWatchers.add((event) => {
    if (event.action !== 'deny' || event.canary === true || event.kind === 'close') return
    const target = event.host ?? event.address ?? 'unknown'
    events.append({
      type: 'egress.denied',
      seq: event.seq,
      protocol: event.protocol,
      target: event.port === null ? target : `${target}:${event.port}`,
      reason: event.reason ?? 'internal_error',
    })
  })
  return {
    container: null,
    pid: 0,
    gpus: null,
    defaults: { user: '0', workdir: '/' },
    upperDir: null,
    cgroup: null,
    network: null,
    audit,
    auditWatchers,
    events,
    model: null,
    modelListener: null,
    huggingFace: null,
    artifact: null,
    execGateway: null,
    disk: null,
  }
}
