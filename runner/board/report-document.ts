/** The figures of a job for the dashboard's plots, from its plan and the results so far; the statistics are the report's. */
import type { IntervalDocument, ReportDocument } from '../../daemon/protocol/board-documents.ts'
import type { Plan } from '../job/plan.ts'
import { isScored, type TrialResult } from '../result.ts'
import { mean, passRate } from '../statistics.ts'

export function reportDocument(
  plan: Pick<Plan, 'configurations' | 'trials'>,
  results: ReadonlyMap<string, TrialResult>,
): ReportDocument {
  const configurations = plan.configurations.map(({ name, model, harness }) => {
    const planned = plan.trials.filter(({ configuration }) => configuration === name)
    const own = planned.flatMap(({ trial }) => results.get(trial) ?? []).filter(isScored)
    const rate = passRate(
      planned.map(({ trial, task, run }) => {
        const result = results.get(trial)
        const scored = result !== undefined && isScored(result)
        return { task, run, passed: scored ? result.verdict === 'passed' : null }
      }),
    )
    return {
      ...{ name, model, harness },
      planned: rate.planned,
      scored: rate.scored,
      passed: rate.passed,
      passAt1: rate.passAt1,
      overRuns: bounds(rate.overRuns),
      byTask: bounds(rate.byTask),
      meanCostUsd: mean(own.map(({ costUsd }) => costUsd)),
      meanWallTimeMs: mean(own.map(({ wallTimeMs }) => wallTimeMs)),
      meanOutputTokens: mean(own.map(({ usage }) => usage.outputTokens)),
    }
  })
  return {
    planned: plan.trials.length,
    scored: [...results.values()].filter(isScored).length,
    configurations,
  }
}

const bounds = (interval: IntervalDocument | null): IntervalDocument | null =>
  interval === null ? null : { low: interval.low, high: interval.high }
