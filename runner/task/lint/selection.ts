/**
 * Which rules count for a task: the default ones, or those named by --select; and what the task itself says in
 * `[metadata.closedbook.lint]` (or Harbor's `[metadata.harbor.lint]`). `rule:glob` ignores a rule for matching files only.
 */
import { matchesGlob } from 'node:path'
import { RunnerError } from '../../errors.ts'
import type { Finding } from './finding.ts'
import { isRuleName, ruleNames, rules, type RuleName } from './rules.ts'

export interface RuleOptions {
  readonly select?: readonly string[] | undefined
  readonly extendSelect?: readonly string[] | undefined
  readonly ignore?: readonly string[] | undefined
}

export interface Selection {
  wants(rule: RuleName): boolean
  keeps(finding: Finding): boolean
}

/** Throws `usage` for a name that is no rule; what a task says of Harbor's own rules is always known. */
export function selectRules(options: RuleOptions, ofTask: RuleOptions = {}): Selection {
  const chosen = options.select ?? ofTask.select
  const enabled = new Set<RuleName>(
    chosen === undefined
      ? ruleNames.filter((name) => rules[name].byDefault)
      : chosen.flatMap(namesOf),
  )
  for (const name of [...(options.extendSelect ?? []), ...(ofTask.extendSelect ?? [])])
    for (const rule of namesOf(name)) enabled.add(rule)
  const patterns: { rule: RuleName; glob: string }[] = []
  for (const text of [...(options.ignore ?? []), ...(ofTask.ignore ?? [])]) {
    const colon = text.indexOf(':')
    if (colon === -1) for (const rule of namesOf(text)) enabled.delete(rule)
    else
      for (const rule of namesOf(text.slice(0, colon)))
        patterns.push({ rule, glob: text.slice(colon + 1) })
  }
  const wants = (rule: RuleName): boolean => enabled.has(rule)
  return {
    wants,
    keeps: (finding) =>
      wants(finding.rule) &&
      !patterns.some(
        ({ rule, glob }) => rule === finding.rule && matchesGlob(pathOf(finding), glob),
      ),
  }
}

/** Globs are written without `image:`. */
const pathOf = ({ file }: Finding): string => file.replace(/^image:/, '')

function namesOf(text: string): readonly RuleName[] {
  const name = text.trim()
  if (/^all$/i.test(name)) return ruleNames
  if (isRuleName(name)) return [name]
  throw new RunnerError(
    'usage',
    'operator',
    `there is no lint rule "${name}"; \`closedbook task lint --rules\` lists them`,
  )
}

/** What a task asks for in its metadata; anything that isn't a list of words is not read. */
export function selectionOfTask(toml: unknown): RuleOptions {
  const found: RuleOptions[] = ['closedbook', 'harbor'].map((owner) => {
    const section = tableAt(toml, ['metadata', owner, 'lint'])
    return {
      select: words(section?.['select']),
      extendSelect: words(section?.['extend-select']),
      ignore: words(section?.['ignore']),
    }
  })
  const all = (key: keyof RuleOptions): string[] => found.flatMap((one) => one[key] ?? [])
  return {
    select: found.find((one) => one.select !== undefined)?.select,
    extendSelect: all('extendSelect'),
    ignore: all('ignore'),
  }
}

const words = (value: unknown): string[] | undefined =>
  Array.isArray(value) ? value.filter((word) => typeof word === 'string') : undefined

export function tableAt(
  value: unknown,
  path: readonly string[],
): Readonly<Record<string, unknown>> | undefined {
  let at = value
  for (const name of path) {
    if (typeof at !== 'object' || at === null || Array.isArray(at)) return undefined
    at = (at as Record<string, unknown>)[name]
  }
  return typeof at === 'object' && at !== null && !Array.isArray(at)
    ? (at as Record<string, unknown>)
    : undefined
}
