/**
 * Which entries are one configuration's. Jobs that try the same configuration (equal in all that was set) on different
 * tasks are joined, so that a benchmark may be split over jobs. Where they overlap, or differ in any setting, they stay
 * apart, and the job is named: nothing is ever averaged that was not the same thing.
 */
import { canonicalJson } from '../job/configuration.ts'
import type { ConfigurationFacts, Entry } from './entries.ts'

export interface ConfigurationGroup {
  readonly label: string
  readonly facts: ConfigurationFacts
  readonly jobs: readonly string[]
  readonly entries: readonly Entry[]
}

export function configurationGroups(entries: readonly Entry[]): ConfigurationGroup[] {
  const owned = entries.flatMap((entry) =>
    entry.configuration === null ? [] : [{ entry, facts: entry.configuration }],
  )
  const identities = new Map<ConfigurationFacts, string>()
  const identityOf = (facts: ConfigurationFacts): string => {
    const known = identities.get(facts)
    if (known !== undefined) return known
    const identity = configurationIdentity(facts)
    identities.set(facts, identity)
    return identity
  }
  const ofJob = Map.groupBy(owned, ({ entry, facts }) =>
    JSON.stringify([entry.job, facts.name, identityOf(facts)]),
  )
  const groups: {
    identity: string
    facts: ConfigurationFacts
    jobs: string[]
    entries: Entry[]
  }[] = []
  for (const own of ofJob.values()) {
    const [first] = own
    if (first === undefined) continue
    const identity = identityOf(first.facts)
    const all = own.map(({ entry }) => entry)
    const same = groups.find(
      (group) => group.identity === identity && !overlaps(group.entries, all),
    )
    if (same === undefined)
      groups.push({ identity, facts: first.facts, jobs: [first.entry.job], entries: all })
    else {
      same.jobs.push(first.entry.job)
      same.entries.push(...all)
    }
  }
  return withLabels(groups)
}

/** Equal for configurations that are equal in all that can change an outcome. */
export const configurationIdentity = ({ settings, ...facts }: ConfigurationFacts): string => {
  const { name, model, harness, harnessDigest } = facts
  return canonicalJson([name, model, harness, harnessDigest, settings])
}

function overlaps(a: readonly Entry[], b: readonly Entry[]): boolean {
  const tasks = new Set(a.map(({ task }) => task.name))
  return b.some(({ task }) => tasks.has(task.name))
}

function withLabels<
  T extends { readonly facts: ConfigurationFacts; readonly jobs: readonly string[] },
>(groups: readonly T[]): (T & { readonly label: string })[] {
  const taken = new Map<string, number>()
  return groups.map((group) => {
    const { name } = group.facts
    const alone = groups.filter(({ facts }) => facts.name === name).length === 1
    const label = alone ? name : `${name}@${group.jobs.join('+')}`
    const before = taken.get(label) ?? 0
    taken.set(label, before + 1)
    return { ...group, label: before === 0 ? label : `${label}#${before + 1}` }
  })
}
