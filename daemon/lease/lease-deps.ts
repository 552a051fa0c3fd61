/** What leases need from the daemon that owns them; put together once, in daemon.ts. */
import type { Engine, EngineInfo } from '../engine/engine.ts'
import type { EgressSettings } from '../egress-settings.ts'
import type { GpuPool } from '../gpu/pool.ts'
import type { ArtifactCache } from '../gateway/artifact-cache/artifact-cache.ts'
import type { Hub } from '../gateway/hugging-face/hub.ts'
import type { Logger } from '../logger.ts'
import type { Admission } from './admission.ts'
import type { Bundles } from './bundles.ts'
import type { Ptys } from '../pty/ptys.ts'
import type { Journal } from './journal.ts'
import type { Lease } from './lease.ts'

export interface LeaseDeps {
  readonly engine: Engine
  readonly engineInfo: EngineInfo
  /** Static programs of the host that are mounted read-only into every sandbox. */
  readonly tools: { readonly initPath: string; readonly busyboxPath: string }
  readonly instance: string
  readonly journal: Journal
  readonly admission: Admission
  readonly gpus: GpuPool
  readonly bundles: Bundles
  readonly ptys: Ptys
  readonly directories: {
    readonly audit: string
    readonly events: string
    readonly exchanges: string
  }
  readonly egress: EgressSettings
  /** Shared by all leases: the way to the Hub, and what was fetched from it. */
  readonly huggingFace: { readonly hub: Hub; readonly cache: ArtifactCache }
  /** Throws `disk_full` when the host has too little room for another lease. */
  readonly requireRoom: () => Promise<void>
  readonly defaultDiskBytes: number
  readonly findLease: (id: string) => Lease | undefined
  /** Throws `lease_unknown`. */
  readonly getLease: (id: string) => Lease
  readonly log: Logger
}
