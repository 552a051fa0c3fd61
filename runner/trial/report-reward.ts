/**
 * Harbor's reward files: `reward.json` (a flat map of numbers) and `reward.txt` (one number). Each number is a test of
 * its own, passed only by exactly 1. Harbor prefers the JSON in silence; here two files that disagree are no report.
 */
import { ReportError, idText, type ReportedTest } from './reported.ts'

export function parseReward(files: { json: Buffer | null; txt: Buffer | null }): ReportedTest[] {
  const fromJson = files.json === null ? null : jsonRewards(files.json.toString('utf8'))
  const fromTxt = files.txt === null ? null : textReward(files.txt.toString('utf8'))
  if (fromJson === null && fromTxt === null)
    throw new ReportError('neither reward.txt nor reward.json was written')
  if (fromJson !== null && fromTxt !== null) {
    const [only] = fromJson.values()
    if (fromJson.size !== 1 || only !== fromTxt)
      throw new ReportError('reward.txt and reward.json disagree')
  }
  const rewards = fromJson ?? new Map([['reward', fromTxt ?? Number.NaN]])
  return [...rewards].map(([name, value]) => ({
    id: idText(name),
    outcome: value === 1 ? 'passed' : 'failed',
    durationMs: null,
    message: value === 1 ? null : `reward ${value}`,
  }))
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
