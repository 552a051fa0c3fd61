/**
 * How the agent phase ended for a harness in the task's own sandbox. Whoever is in there may stop the harness, kill it
 * and write its trajectory, so no word of its own and no way of its process to end excuses a trial: what isn't ours, the
 * engine's or the provider's, by our own records, is the agent's, and is graded. Pure.
 */
import {
  endByFault,
  endBeforeHarness,
  exitText,
  ownEnds,
  end,
  type End,
  type EndFacts,
} from './ends.ts'

export interface InsideEndFacts extends Pick<
  EndFacts,
  'processExit' | 'timedOut' | 'gatewayFault' | 'budgetSpent' | 'taskGone'
> {
  /** Ended by us: it had been silent for too long. */
  readonly hung: boolean
  readonly mayEndSandbox: boolean
  /** What the harness says, for people; null where it left nothing that can be read. */
  readonly exitStatus: string | null
}

export function classifyInsideEnd(facts: InsideEndFacts): End {
  const earlier = endBeforeHarness(facts)
  if (earlier !== null) return earlier
  const { hung, gatewayFault, budgetSpent, exitStatus, processExit } = facts
  if (exitStatus === 'Submitted') return end('done', null, 'submitted', 'the agent submitted')
  // The last call was answered by the provider with a fault, and no good answer came after it.
  if (gatewayFault !== null) return endByFault(gatewayFault)
  if (hung)
    return end(
      'crash',
      'agent',
      'harness_hung',
      'the harness was silent for too long and was ended',
    )
  if (budgetSpent)
    return end(
      'limit',
      'agent',
      'budget_spent',
      "the gateway's budget of calls, tokens or cost was spent",
    )
  const own = exitStatus === null ? undefined : ownEnds[exitStatus]
  if (own !== undefined) return end(own[0], 'agent', own[1], own[2])
  if (processExit !== 'unknown' && 'code' in processExit && processExit.code === 0)
    return end('done', null, 'submitted', 'the harness ended')
  return end('crash', 'agent', 'harness_ended', `the harness ended with ${exitText(processExit)}`)
}
