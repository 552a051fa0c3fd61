/** A task as the rest of the runner sees it: checked, with defaults filled in and every path resolved. */
import type { allowedCapabilities } from '../../daemon/protocol/lease.ts'
import type { HuggingFaceRepo } from '../../policy/hugging-face.ts'
import type { ResultFormat } from './schema.ts'

/** Where the image comes from. Containers are started by the id that it resolves to, never by a tag. */
export type TaskImage =
  | { readonly kind: 'reference'; readonly reference: string }
  | { readonly kind: 'dockerfile'; readonly context: string; readonly dockerfile: string }

export type SuiteName = 'functional' | 'regression'

export interface Suite {
  readonly name: SuiteName
  /** For `bash -c`, in the workdir, with the hidden tests at /tests. */
  readonly command: string
  readonly results: ResultFormat
  readonly timeoutSeconds: number
  /** Ids that must be reported; null where none are recorded. */
  readonly expected: readonly string[] | null
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
  readonly artifacts: readonly { readonly source: string; readonly exclude: readonly string[] }[]
  /** Model artifacts that the sandbox may read. */
  readonly huggingface: readonly HuggingFaceRepo[]
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
  readonly verifier: {
    readonly timeoutSeconds: number
    readonly user: string | null
    readonly env: Readonly<Record<string, string>>
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
