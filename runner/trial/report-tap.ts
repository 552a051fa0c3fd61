/**
 * TAP 13 and 14, strictly: one plan, whose count is the number of tests; subtests indented by four spaces. Ids are the
 * descriptions of the leaves, joined by ` > `. `# SKIP` and `# TODO` count as skipped, `Bail out!` ends the report.
 */
import { ReportError, idText, messageText, type ReportedTest } from './reported.ts'

interface Level {
  /** Tests of this depth since its subtest began. */
  readonly tests: ReportedTest[]
  points: number
  plan: number | null
}

const point = /^(not )?ok\b(?: +(\d+))?(?: +- +| +)?(.*)$/
/** An unescaped ` #` ends the description; what follows is a directive, or a comment such as `# time=3ms`. */
const hash = /\s#\s*(.*)$/
const directive = /^(?:SKIP|TODO)\S*\s*(.*)$/i

export function parseTap(text: string): readonly ReportedTest[] {
  const levels: Level[] = [{ tests: [], points: 0, plan: null }]
  let inYaml: number | null = null
  for (const line of text.split(/\r?\n/)) {
    const indent = /^ */.exec(line)?.[0].length ?? 0
    const body = line.slice(indent)
    if (inYaml !== null) {
      if (indent === inYaml && body === '...') inYaml = null
      continue
    }
    if (body === '---' && indent % 4 === 2) {
      inYaml = indent
      continue
    }
    if (indent % 4 !== 0 || body === '' || body.startsWith('#')) continue
    const depth = indent / 4
    if (/^Bail out!/i.test(body)) throw new ReportError(`the run gave up: ${body}`)
    const plan = /^1\.\.(\d+)(?:\s|$)/.exec(body)
    const test = point.exec(body)
    if (plan === null && test === null) continue
    while (levels.length <= depth) levels.push({ tests: [], points: 0, plan: null })
    const level = levels[depth] as Level
    if (plan !== null) {
      if (level.plan !== null) throw new ReportError('it has more than one plan')
      level.plan = Number(plan[1])
    } else if (test !== null) {
      level.points += 1
      if (test[2] !== undefined && Number(test[2]) !== level.points)
        throw new ReportError(`test ${test[2]} is out of order`)
      addTest(level, test, levels.splice(depth + 1))
    }
  }
  if (inYaml !== null) throw new ReportError('it ends in the middle of a diagnostic')
  if (levels.length > 1) throw new ReportError('it ends in the middle of a subtest')
  const [top] = levels as [Level]
  checkPlan(top)
  return top.tests
}

/** A test with subtests gives their leaves, and itself only when it failed though none of them did. */
function addTest(level: Level, match: RegExpExecArray, inner: readonly Level[]): void {
  const text = ` ${match[3] ?? ''}`
  const found = directive.exec(hash.exec(text)?.[1] ?? '')
  const name = text.replace(hash, '').trim().replaceAll('\\#', '#')
  const id = name === '' ? `${level.points}` : name
  const failed = match[1] !== undefined
  const [below] = inner
  if (below !== undefined) checkPlan(below)
  const leaves = below?.tests ?? []
  for (const leaf of leaves) level.tests.push({ ...leaf, id: idText(`${id} > ${leaf.id}`) })
  if (leaves.length > 0 && (!failed || leaves.some((leaf) => leaf.outcome === 'failed'))) return
  level.tests.push({
    id: idText(id),
    outcome: found !== null ? 'skipped' : failed ? 'failed' : 'passed',
    durationMs: null,
    message: messageText(found?.[1] ?? ''),
  })
}

function checkPlan(level: Level): void {
  if (level.plan === null) throw new ReportError('it has no plan; it was cut off')
  if (level.plan !== level.points)
    throw new ReportError(`its plan says ${level.plan} tests, it has ${level.points}`)
}
