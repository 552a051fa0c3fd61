/**
 * The values that tasks take from the host (`--host-env`), as a plan holds them: sealed, so that another value is
 * noticed and none can be read or guessed. A plan and its results go to others, so a digest alone would give a short
 * secret away: the seal is made with a key of the job's own, which is in the store and in no file. See decision 44.
 */
import { randomBytes, scryptSync } from 'node:crypto'
import type { Task } from '../task/task.ts'

export type Seal = (name: string, value: string) => string

/** What is written where there is no key, and where the host has no such variable. */
const isSet = 'set'
export const isUnset = 'unset'

export const newHostKey = (): string => randomBytes(32).toString('hex')

/** Slow on purpose, also for whoever reads the store; once for each variable, however many tasks take it. */
export function sealWith(key: string): Seal {
  const known = new Map<string, string>()
  return (name, value) => {
    const input = JSON.stringify([name, value])
    const sealed = known.get(input) ?? `scrypt:${scryptSync(input, key, 32).toString('hex')}`
    known.set(input, sealed)
    return sealed
  }
}

/** By name; null where the task takes none. */
export function sealedValues(
  { hostValues }: Pick<Task, 'hostValues'>,
  seal: Seal | null,
): Record<string, string> | null {
  const all = Object.entries(hostValues)
  if (all.length === 0) return null
  return Object.fromEntries(
    all.map(([name, value]) => [
      name,
      value === null ? isUnset : seal === null ? isSet : seal(name, value),
    ]),
  )
}

/** In words. A plan of before has none, and a value without a seal says only that there is one. */
export function valueDifferences(
  task: string,
  then: Readonly<Record<string, string>> | undefined,
  now: Readonly<Record<string, string>> | undefined,
): string[] {
  return Object.entries(then ?? {}).flatMap(([name, planned]) => {
    const found = now?.[name] ?? isUnset
    if (found === planned || (found === isSet && planned !== isUnset)) return []
    const how =
      found === isUnset
        ? 'is not set here, and was where the job was planned'
        : planned === isUnset
          ? 'is set here, and was not where the job was planned'
          : 'has another value here than where the job was planned'
    return [`the variable ${name}, which task ${task} takes from the host, ${how}`]
  })
}
