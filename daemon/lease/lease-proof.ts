/**
 * The proof of a lease: canaries before the work and after it, each with what it saw and whether the audit has it. The
 * program is started early, while the network is still being sealed, and waits for its canaries.
 */
import type { AuditEvent } from '../../policy/audit-event.ts'
import { canaries, judge, type ProofOptions } from '../network/proof.ts'
import type { CanaryResult } from '../protocol/lease.ts'
import type { LeaseDeps } from './lease-deps.ts'
import type { LeaseParts } from './lease-parts.ts'
import { ProofRun } from './proof-run.ts'

type Phase = ProofOptions['phase']

export interface LeaseProofDeps extends Pick<LeaseDeps, 'engine' | 'tools'> {
  readonly parts: LeaseParts
  readonly container: () => string
  /** Aborts when the lease begins to close. */
  readonly ended: AbortSignal
}

export class LeaseProof {
  readonly #deps: LeaseProofDeps
  #run: ProofRun | null = null

  constructor(deps: LeaseProofDeps) {
    this.#deps = deps
  }

  /** Starts the program of the proof, which waits until `prove` gives it its canaries. */
  start(phase: Phase): ProofRun {
    const { engine, tools, parts, container, ended: signal } = this.#deps
    const { pid, cgroup, defaults } = parts
    this.#run ??=
      phase === 'after'
        ? ProofRun.beside({ pid, busyboxPath: tools.busyboxPath }, { signal })
        : ProofRun.inside(
            { engine, container: container() },
            { execId: `proof-${phase}`, user: defaults.user, cgroup, signal },
          )
    return this.#run
  }

  /** `count` brings the census up to date. */
  async prove(phase: Phase, count: () => Promise<void>): Promise<CanaryResult[]> {
    const { audit, network, auditWatchers, model, execGateway, artifact } = this.#deps.parts
    if (network === null) throw new Error('a sealed lease without a network')
    const list = canaries({
      phase,
      model: phase === 'before' && model !== null,
      exec: phase === 'before' && execGateway !== null,
      artifact: phase === 'before' ? artifact : null,
    })
    const run = this.start(phase)
    this.#run = null
    // Attempts of the agent's are counted before ours are marked; in a new sandbox nothing has run.
    if (phase === 'after') await count()
    const seen: AuditEvent[] = []
    const see = (event: AuditEvent): void => void seen.push(event)
    auditWatchers.add(see)
    audit.canary = true
    try {
      const output = await run.run(list)
      await network.count()
      return judge(list, output, seen)
    } finally {
      audit.canary = false
      auditWatchers.delete(see)
    }
  }
}
