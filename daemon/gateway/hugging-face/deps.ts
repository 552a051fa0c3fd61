/** What the gateway of one lease is made of. */
import type net from 'node:net'
import type { AuditRecord } from '../../../policy/audit-event.ts'
import type { ArtifactCache } from '../artifact-cache/artifact-cache.ts'
import type { Hub } from './hub.ts'

/** What the gateway needs of a lease's audit log. */
export interface HubAudit {
  append(record: AuditRecord): unknown
  /** A number that joins a decision with its close. */
  nextConnection(): number
  /** Resolves when what was appended has left the process. */
  flush(): Promise<void>
}

export interface HuggingFaceGatewayDeps {
  /** Listening in the sandbox's namespace; stays the caller's to close. */
  readonly server: net.Server
  readonly audit: HubAudit
  readonly hub: Hub
  readonly cache: ArtifactCache
  /** Where the commits of branches are kept for as long as the lease lives. */
  readonly pinsFile: string
  /** Told of faults of our own, whose words no sandbox gets. */
  readonly onFault?: (error: unknown) => void
  /** Aborted: the gateway shuts. */
  readonly signal: AbortSignal
}
