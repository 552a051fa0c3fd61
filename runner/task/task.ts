/** A task as the rest of the runner sees it: checked, with defaults filled in and every path resolved. */
import type { allowedCapabilities } from '../../daemon/protocol/lease.ts'
import type { HuggingFaceRepo } from '../../policy/hugging-face.ts'
import type { ResultFormat } from './schema.ts'

/** Where the image comes from. Containers are started by the id that it resolves to, never by a tag. */
export type TaskImage =
  | {
      readonly kind: 'reference'
      readonly reference: string
      /** A folder whose files belong into the workdir of a prebuilt image. */
      readonly loose?: { readonly folder: string; readonly workdir: string | null }
    }
  | {
      readonly kind: 'dockerfile'
      readonly context: string
      readonly dockerfile: string
      /** FROM may name a tag of somebody else; what it stands for is resolved when the job is planned. */
      readonly tags?: boolean
    }

export type SuiteName = 'functional' | 'regression'

export interface Suite {
  readonly name: SuiteName
  /** For `bash -c`, in the workdir, with the hidden tests at /tests. */
  readonly command: string
  readonly results: ResultFormat
  readonly timeoutSeconds: number
  /** `harbor`: a script that runs as Harbor runs it, in the image's own environment, its exit status of no account. */
  readonly manner?: 'harbor'
  /** Ids that must be reported; null where none are recorded. */
  readonly expected: readonly string[] | null
}

export interface Healthcheck {
  readonly command: string
  readonly intervalMs: number
  readonly timeoutMs: number
  readonly startPeriodMs: number
  readonly startIntervalMs: number
  readonly retries: number
}

export interface CollectHook {
  readonly command: string
  readonly timeoutMs: number
  /** null: the image's user. */
  readonly user: string | null
}

export interface Task {
  readonly dir: string
  readonly name: string
  readonly description: string
  readonly area: string
  readonly hardware: 'cpu' | 'h100'
  /** Shown to reviewers, never to the agent. */
  readonly source: { readonly kind: string; readonly ref: string } | null
  /** instruction.md without leading canary lines. */
  readonly instruction: string
  readonly image: TaskImage
  /** null: the image's own working directory. */
  readonly workdir: string | null
  /** null: the commit that HEAD names in the pristine image. */
  readonly baseCommit: string | null
  readonly verify: 'patch' | 'snapshot' | 'artifacts'
  /** Of what a snapshot is taken: the workdir, or all that changed in the container. */
  readonly snapshotOf: 'workdir' | 'container'
  readonly artifacts: readonly {
    readonly source: string
    readonly exclude: readonly string[]
    /** Nothing is said when it isn't there. */
    readonly optional?: boolean
  }[]
  /** Model artifacts that the sandbox may read. */
  readonly huggingface: readonly HuggingFaceRepo[]
  /** The hidden tests may read them as well. */
  readonly verifierArtifacts: boolean
  readonly suites: { readonly functional: Suite; readonly regression: Suite | null }
  readonly environment: {
    readonly env: Readonly<Record<string, string>>
    readonly capabilities: readonly (typeof allowedCapabilities)[number][]
    readonly buildTimeoutSeconds: number
    /** Only what the task asks for; the configuration and then the daemon fill in the rest. */
    readonly resources: {
      readonly cpus?: number
      readonly memoryBytes?: number
      readonly diskBytes?: number
      readonly pids?: number
      readonly shmBytes?: number
    }
  }
  readonly agent: { readonly timeoutSeconds: number | null; readonly user: string | null }
  /** No [closedbook] section: its containers and its tests are run as Harbor runs them. */
  readonly harbor: boolean
  /** The network that it asked for and doesn't get, because the operator said so; null where it asks for none. */
  readonly network: {
    readonly asked: 'public' | 'allowlist'
    readonly hosts: readonly string[]
  } | null
  /** Variables of the host that its containers are given, by name; null: not set there. Never to be written down. */
  readonly hostValues: Readonly<Record<string, string | null>>
  /** Must succeed before the agent starts. */
  readonly healthcheck: Healthcheck | null
  /** Run in the agent's container when it has ended, before anything is taken out. */
  readonly collectHooks: readonly CollectHook[]
  /** Paths in tests/ and solution/ that their ignore files leave out of every container. */
  readonly leftOut: { readonly tests: ReadonlySet<string>; readonly solution: ReadonlySet<string> }
  readonly verifier: {
    readonly timeoutSeconds: number
    readonly user: string | null
    readonly env: Readonly<Record<string, string>>
    /** A verifier apart from the task's container; null: as the task's. */
    readonly place: {
      /** null: the task's image. */
      readonly image: TaskImage | null
      /** The image holds the tests; nothing is mounted over them. */
      readonly bundled: boolean
      readonly workdir: string | null
      readonly env: Readonly<Record<string, string>>
      readonly resources: Task['environment']['resources']
    } | null
  }
  /** `script` is relative to `solution/`; null where the task has no solution. */
  readonly solution: {
    readonly script: string | null
    readonly env: Readonly<Record<string, string>>
  }
  readonly testsDir: string
  readonly solutionDir: string | null
  /** `sha256:…` of the whole directory, of tests/ and of the instruction as the agent gets it. */
  readonly digest: string
  readonly testsDigest: string
  readonly instructionDigest: string
  /** What the task says and this product does otherwise, for people. */
  readonly notes: readonly string[]
}
