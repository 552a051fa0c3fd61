/** What lint says: one finding has a rule, a place and what to do. */
import { isRuleName, rules, type RuleName, type Severity } from './rules.ts'

export interface Finding {
  readonly rule: RuleName
  readonly severity: Severity
  /** Relative to the task directory, or `image:/path` for what lies in the image. */
  readonly file: string
  /** From 1; null where a line makes no sense. */
  readonly line: number | null
  /** What is wrong, and what to do. */
  readonly message: string
}

/** Collects findings; the same one is kept once. */
export class Findings {
  readonly #found = new Map<string, Finding>()

  add(rule: RuleName, file: string, message: string, line: number | null = null): void {
    const finding: Finding = { rule, severity: rules[rule].severity, file, line, message }
    this.#found.set(JSON.stringify([rule, file, line, message]), finding)
  }

  has(rule: RuleName, file: string): boolean {
    return [...this.#found.values()].some((one) => one.rule === rule && one.file === file)
  }

  sorted(): Finding[] {
    return [...this.#found.values()].toSorted(
      (a, b) => compare(a.file, b.file) || (a.line ?? 0) - (b.line ?? 0) || compare(a.rule, b.rule),
    )
  }
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

/** For settings that were read from a document. */
export const parseRuleName = (name: unknown): RuleName | null =>
  typeof name === 'string' && isRuleName(name) ? name : null
