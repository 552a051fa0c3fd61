/**
 * What runners publish on the board and the dashboard shows. The daemon itself reads none of it. Ids: a job's document
 * `job/<job>`, its figures `report/<job>`; of a trial `trial/<job>.<trial>`, `result/<job>.<trial>` (a whole
 * result.json), its steps as lines `steps/<job>.<trial>.<execution>`, files `evidence/<job>.<trial>.<name>`.
 */
export interface JobDocument {
  readonly job: string
  readonly name: string
  readonly createdAt: string
  readonly runs: number
  readonly state: 'running' | 'ended' | 'interrupted'
  readonly tasks: readonly {
    readonly name: string
    readonly area: string
    readonly hardware: string
  }[]
  readonly configurations: readonly {
    readonly name: string
    readonly model: string | null
    readonly harness: string
  }[]
  readonly trials: readonly PlannedTrialDocument[]
  /** On the runner's host. */
  readonly directory: string
  readonly host: string
}

export interface PlannedTrialDocument {
  readonly trial: string
  readonly task: string
  readonly configuration: string
  readonly run: number
}

export interface TrialDocument extends PlannedTrialDocument {
  readonly job: string
  /** `stopped`: its job was interrupted or cancelled under it; it runs anew when the job is resumed. */
  readonly state: 'running' | 'stopped' | 'recorded'
  readonly execution: string
  readonly phase: string | null
  readonly startedAt: string
  readonly endedAt: string | null
  readonly steps: number
  readonly inputTokens: number
  readonly cachedInputTokens: number
  readonly outputTokens: number
  readonly costUsd: number
  readonly denied: number
  readonly verdict: 'passed' | 'failed' | 'void' | null
  readonly blame: string | null
  readonly reason: { readonly code: string; readonly message: string } | null
  readonly functional: SuiteDocument | null
  readonly regression: SuiteDocument | null
  readonly wallTimeMs: number | null
  readonly assisted: boolean
  /** The last thing that was worth a line to people. */
  readonly note: string | null
  readonly evidence: readonly EvidenceNote[]
}

export interface SuiteDocument {
  readonly planned: number
  readonly passed: number
}

export interface EvidenceNote {
  readonly name: string
  readonly bytes: number
  /** Of the document; null where it is not published. */
  readonly id: string | null
}

export interface EvidenceDocument {
  readonly name: string
  /** On the runner's host. */
  readonly path: string
  readonly bytes: number
  readonly truncated: boolean
  readonly text: string
}

/** One line of `steps/…`: a step as the runner keeps it. */
export interface StepDocument {
  readonly step: number
  readonly time: string
  readonly text: string | null
  readonly commands: readonly {
    readonly exec: string
    readonly command: string
    readonly exit: unknown
    readonly cause: string | null
    readonly startedAt: string
    readonly durationMs: number | null
    readonly outputBytes: number | null
    readonly head: string
    readonly tail: string
  }[]
  readonly tokens: {
    readonly input: number
    readonly cachedInput: number
    readonly output: number
    readonly reasoning: number
  } | null
  readonly costUsd: number
  readonly denied: readonly {
    readonly seq: number
    readonly protocol: string
    readonly target: string
    readonly reason: string
    readonly count: number
  }[]
}

/** Of `report/<job>`: what the plots need of a configuration. */
export interface ReportDocument {
  readonly planned: number
  readonly scored: number
  readonly configurations: readonly {
    readonly name: string
    readonly model: string | null
    readonly harness: string
    readonly planned: number
    readonly scored: number
    readonly passed: number
    /** 0 to 1; null while trials lack a score. */
    readonly passAt1: number | null
    /** 95 %, over the runs' pass rates, and clustered by task. */
    readonly overRuns: IntervalDocument | null
    readonly byTask: IntervalDocument | null
    readonly meanCostUsd: number | null
    readonly meanWallTimeMs: number | null
    readonly meanOutputTokens: number | null
  }[]
}

export interface IntervalDocument {
  readonly low: number
  readonly high: number
}
