/** What this page reads of a result.json (schema closedbook.result/1). */
export interface TrialResult {
  readonly tests: readonly {
    readonly suite: string
    readonly id: string
    readonly outcome: string
    readonly durationMs: number | null
    readonly message: string | null
  }[]
  readonly phasesMs: Readonly<Record<string, number>>
  readonly digests: Readonly<Record<string, string | null>>
  readonly host: {
    readonly name: string
    readonly engine: string
    readonly kernel: string
    readonly cpus: number
  }
  readonly gpus: readonly { readonly uuid: string; readonly name: string }[]
  readonly egress: {
    readonly attempts: number
    readonly denied: number
    readonly allowed: number
    readonly byReason: Readonly<Record<string, number>>
  }
  readonly proof: { readonly before: readonly Canary[]; readonly after: readonly Canary[] }
  readonly executions: readonly {
    readonly id: string
    readonly startedAt: string
    readonly endedAt: string
    readonly blame: string | null
    readonly reason: { readonly code: string; readonly message: string } | null
  }[]
  readonly configuration: {
    readonly name: string
    readonly model: string | null
    readonly harness: string
  }
  readonly closedbookVersion: string
}

export interface Canary {
  readonly canary: string
  readonly expected: string
  readonly seen: string
  readonly audited: boolean | null
}
