/** What lint needs to look into images: a daemon, whose engine has them. */
import type { DaemonClient } from '../../../../daemon/protocol/client.ts'

export interface ImageAccess {
  readonly client: DaemonClient
  readonly stateDir: string
  readonly say: (what: string) => void
  readonly signal: AbortSignal
}
