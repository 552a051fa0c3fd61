/**
 * What each canary of a sandbox's proof leaves in the audit log, as far as it can be told afterwards: names and ports
 * that were drawn for one proof are known by their form. A proof that says "audited" can so be held against a log.
 */
import type { AuditEvent } from './audit-event.ts'

type Trace = (event: AuditEvent) => boolean

const outside = '198.51.100.7'

const counted =
  (protocol: AuditEvent['protocol'], address: string): Trace =>
  (event) =>
    event.kind === 'census' &&
    event.protocol === protocol &&
    (event.address === address || event.address === null)

const traces: Readonly<Record<string, Trace>> = {
  'direct-tcp': counted('tcp', outside),
  'direct-tls': ({ address, port, action }) =>
    address === outside && port === 443 && action === 'deny',
  'direct-udp': counted('udp', outside),
  'dns-name': ({ protocol, host }) =>
    protocol === 'dns' && /^[0-9a-f]{16}\.canary\.example$/.test(host ?? ''),
  metadata: counted('tcp', '169.254.169.254'),
  'denied-connect': ({ protocol, action, host }) =>
    protocol === 'connect' &&
    action === 'deny' &&
    /^[0-9a-f]{16}\.denied\.example$/.test(host ?? ''),
  'artifact-head': ({ protocol, reason }) => protocol === 'hf' && reason === 'allowed_artifact',
}
const hostAddress = 'host-address-'

/** null for a canary that isn't known here: then nothing can be said of it. */
export function canaryTrace(canary: string): Trace | null {
  if (canary.startsWith(hostAddress)) return counted('tcp', canary.slice(hostAddress.length))
  return traces[canary] ?? null
}

export interface ProvenCanary {
  readonly canary: string
  /** null where the attempt leaves no trace by nature. */
  readonly audited: boolean | null
}

/** Counts what canaries left as the events of a log go by. */
export class CanaryCensus {
  /** Names that are asked for, and how many proofs say that the log has them. */
  readonly #wanted = new Map<string, number>()
  readonly #found = new Map<string, number>()
  readonly #traces: { readonly canary: string; readonly trace: Trace }[] = []

  constructor(proof: readonly ProvenCanary[]) {
    for (const { canary, audited } of proof) {
      if (audited !== true) continue
      const trace = canaryTrace(canary)
      if (trace === null) continue
      if (!this.#wanted.has(canary)) this.#traces.push({ canary, trace })
      this.#wanted.set(canary, (this.#wanted.get(canary) ?? 0) + 1)
    }
  }

  add(event: AuditEvent): void {
    if (event.canary !== true) return
    for (const { canary, trace } of this.#traces)
      if (trace(event)) this.#found.set(canary, (this.#found.get(canary) ?? 0) + 1)
  }

  get expected(): number {
    return this.#wanted.size
  }

  /** Canaries of which the log has fewer than there were proofs. */
  missing(): string[] {
    return [...this.#wanted]
      .filter(([canary, times]) => (this.#found.get(canary) ?? 0) < times)
      .map(([canary]) => canary)
  }
}
