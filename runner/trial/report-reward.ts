/**
 * Harbor's reward files: `reward.json` (a flat map of numbers) and `reward.txt` (one number). Harbor prefers the JSON in
 * silence; here two files that disagree are no report. Each number is a test of its own, passed by exactly 1, its full
 * mark, unless the job says what counts and from where on.
 */
import { z } from 'zod'
import { ReportError, idText, type ReportedTest } from './reported.ts'

export type Rewards = Readonly<Record<string, number>>

const ruleText = /^(>=|<=|>|<|==)\s*(-?\d+(?:\.\d+)?)$/

/** Which rewards count, and what passes: `{reward: ">=0.5"}`. A reward that is not named is kept and doesn't count. */
export const passRuleSchema = z.record(
  z.string().min(1),
  z.string().regex(ruleText, 'must compare with a number, such as ">=0.5" (>=, <=, >, <, ==)'),
)
export type PassRule = z.infer<typeof passRuleSchema>

const compare: Readonly<Record<string, (value: number, bound: number) => boolean>> = {
  '>=': (value, bound) => value >= bound,
  '<=': (value, bound) => value <= bound,
  '>': (value, bound) => value > bound,
  '<': (value, bound) => value < bound,
  '==': (value, bound) => value === bound,
}

const meets = (value: number, rule: string): boolean => {
  const [, sign = '', bound = ''] = ruleText.exec(rule) ?? []
  return compare[sign]?.(value, Number(bound)) === true
}

/** Throws ReportError. */
export function readRewards(files: { json: Buffer | null; txt: Buffer | null }): Rewards {
  const fromJson = files.json === null ? null : jsonRewards(files.json.toString('utf8'))
  const fromTxt = files.txt === null ? null : textReward(files.txt.toString('utf8'))
  if (fromJson === null && fromTxt === null)
    throw new ReportError('neither reward.txt nor reward.json was written')
  if (fromJson !== null && fromTxt !== null) {
    const [only] = fromJson.values()
    if (fromJson.size !== 1 || only !== fromTxt)
      throw new ReportError(
        `reward.json says ${JSON.stringify(Object.fromEntries(fromJson))} and reward.txt ${fromTxt}; write one of them`,
      )
  }
  return Object.fromEntries(fromJson ?? new Map([['reward', fromTxt ?? Number.NaN]]))
}

export function rewardTests(rewards: Rewards, rule: PassRule | null): ReportedTest[] {
  const one = (name: string, value: number, passed: boolean): ReportedTest => ({
    id: idText(name),
    outcome: passed ? 'passed' : 'failed',
    durationMs: null,
    message: passed ? null : `reward ${value}${rule === null ? '' : `, not ${rule[name]}`}`,
  })
  if (rule === null)
    return Object.entries(rewards).map(([name, value]) => one(name, value, value === 1))
  return Object.entries(rule).flatMap(([name, must]) => {
    const value = rewards[name]
    return value === undefined ? [] : [one(name, value, meets(value, must))]
  })
}

function textReward(text: string): number {
  const trimmed = text.trim()
  const value = trimmed === '' ? Number.NaN : Number(trimmed)
  if (!Number.isFinite(value)) throw new ReportError('reward.txt does not hold one finite number')
  return value
}

function jsonRewards(text: string): Map<string, number> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new ReportError(`reward.json is not JSON: ${String(error)}`)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ReportError('reward.json is not an object')
  const rewards = new Map<string, number>()
  for (const [name, number] of Object.entries(value)) {
    if (typeof number !== 'number' || !Number.isFinite(number))
      throw new ReportError(`reward.json: ${name} is not a finite number`)
    rewards.set(name, number)
  }
  if (rewards.size === 0) throw new ReportError('reward.json is empty')
  return rewards
}
