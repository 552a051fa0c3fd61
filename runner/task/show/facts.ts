/** What the runner understands of a task, for people and as JSON: the contract of `closedbook task show`. */
import { standingOf } from '../../qualify/standing.ts'
import { currentReview, readReviews } from '../../review/reviews.ts'
import { readProbe } from '../../probe/document.ts'
import type { Suite, Task } from '../task.ts'

export interface TaskFacts {
  readonly name: string
  readonly dir: string
  readonly description: string
  readonly digest: string
  readonly testsDigest: string
  readonly instructionDigest: string
  readonly area: string
  readonly hardware: 'cpu' | 'h100'
  readonly source: Task['source']
  readonly image: {
    readonly kind: 'reference' | 'dockerfile'
    readonly reference: string
    /** The id that containers start by; null where it isn't built or on this engine yet. */
    readonly id: string | null
  }
  readonly workdir: string | null
  readonly baseCommit: string | null
  readonly verify: Task['verify']
  readonly artifacts: readonly string[]
  readonly limits: {
    readonly agentSeconds: number | null
    readonly verifierSeconds: number
    readonly buildSeconds: number
    readonly resources: Task['environment']['resources']
    readonly capabilities: readonly string[]
  }
  readonly users: { readonly agent: string | null; readonly verifier: string | null }
  readonly suites: { readonly functional: SuiteFacts; readonly regression: SuiteFacts | null }
  readonly huggingface: Task['huggingface']
  readonly solution: string | null
  readonly notes: readonly string[]
  readonly qualification: {
    readonly state: string
    readonly at: string | null
    readonly changed: readonly string[]
  }
  readonly probe: { readonly at: string; readonly ok: boolean } | null
  readonly reviews: {
    readonly count: number
    /** Made over the qualification that holds now; null: nobody decided since. */
    readonly current: { readonly decision: string; readonly by: string; readonly at: string } | null
  }
}

export interface SuiteFacts {
  readonly command: string
  readonly results: string
  readonly timeoutSeconds: number
  readonly expected: readonly string[] | null
}

/** `imageId`: where a daemon could say; null otherwise. */
export async function taskFacts(task: Task, imageId: string | null): Promise<TaskFacts> {
  const standing = await standingOf(task, imageId)
  const reviews = await readReviews(task.dir)
  const current = currentReview(reviews, standing.digest)
  const probe = await readProbe(task.dir)
  return {
    name: task.name,
    dir: task.dir,
    description: task.description,
    digest: task.digest,
    testsDigest: task.testsDigest,
    instructionDigest: task.instructionDigest,
    area: task.area,
    hardware: task.hardware,
    source: task.source,
    image: {
      kind: task.image.kind,
      reference: task.image.kind === 'reference' ? task.image.reference : task.image.dockerfile,
      id: imageId,
    },
    workdir: task.workdir,
    baseCommit: task.baseCommit,
    verify: task.verify,
    artifacts: task.artifacts.map(({ source }) => source),
    limits: {
      agentSeconds: task.agent.timeoutSeconds,
      verifierSeconds: task.verifier.timeoutSeconds,
      buildSeconds: task.environment.buildTimeoutSeconds,
      resources: task.environment.resources,
      capabilities: task.environment.capabilities,
    },
    users: { agent: task.agent.user, verifier: task.verifier.user },
    suites: {
      functional: suiteFacts(task.suites.functional),
      regression: task.suites.regression === null ? null : suiteFacts(task.suites.regression),
    },
    huggingface: task.huggingface,
    solution: task.solution.script,
    notes: task.notes,
    qualification: { state: standing.state, at: standing.at, changed: standing.changed },
    probe: probe === null ? null : { at: probe.value.endedAt, ok: probe.value.ok },
    reviews: {
      count: reviews.length,
      current:
        current === null ? null : { decision: current.decision, by: current.by, at: current.at },
    },
  }
}

const suiteFacts = ({ command, results, timeoutSeconds, expected }: Suite): SuiteFacts => ({
  command,
  results,
  timeoutSeconds,
  expected,
})
