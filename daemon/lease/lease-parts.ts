/** What a lease is made of while it lives. The opening phases fill it in; only the lease itself uses it afterwards. */
import type { Server } from 'node:net'
import type { AuditEvent } from '../../policy/audit-event.ts'
import type { AuditLog } from '../egress/audit-log.ts'
import type { Cgroup } from '../engine/cgroup.ts'
import type { HuggingFaceGateway } from '../gateway/hugging-face/gateway.ts'
import type { ModelGateway } from '../gateway/model.ts'
import type { GpuGrant } from '../gpu/grant.ts'
import type { SealedNetwork } from '../network/seal.ts'
import type { DiskWatch } from './disk-watch.ts'
import type { EventLog } from './event-log.ts'
import type { ExecGateway } from './exec-gateway.ts'

/** What a lease came to own while it was opened; each null until its phase. */
export interface LeaseParts {
  container: string | null
  pid: number
  gpus: GpuGrant | null
  /** For commands that don't say: the request's, else the image's. PID 1 is another user's, out of the agent's reach. */
  defaults: { user: string; workdir: string }
  upperDir: string | null
  cgroup: Cgroup | null
  network: SealedNetwork | null
  audit: AuditLog
  /** Told of each audit event as it is appended. */
  auditWatchers: Set<(event: AuditEvent) => void>
  events: EventLog
  model: ModelGateway | null
  /** Of a lease that has or had a model. */
  modelListener: Server | null
  huggingFace: HuggingFaceGateway | null
  /** Path of an artifact that the gateway serves, for the proof. */
  artifact: string | null
  execGateway: ExecGateway | null
  disk: DiskWatch | null
}
