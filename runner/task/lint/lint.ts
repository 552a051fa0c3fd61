/**
 * Lint of one task: its files first, then (unless told not to) its image. Findings are data; what stops lint from
 * looking at all (no daemon, a build that fails) is thrown.
 */
import { checkConfig, taskNameOf } from './config-rules.ts'
import { readTaskDirectory } from './directory.ts'
import { checkFiles } from './file-rules.ts'
import { imageFacts } from '../lenient.ts'
import { Findings, type Finding } from './finding.ts'
import { checkImage } from './image/check-image.ts'
import type { ImageAccess } from './image/image-access.ts'
import { ruleNames, rules } from './rules.ts'
import { selectionOfTask, selectRules, type RuleOptions } from './selection.ts'
import { checkSuites } from './suite-rules.ts'
import { ClosedbookError } from '../../../daemon/protocol/errors.ts'
import { RunnerError, systemCode } from '../../errors.ts'

export interface LintReport {
  readonly task: string
  readonly dir: string
  readonly findings: readonly Finding[]
  /** Id of the image that was looked into; null where it wasn't. */
  readonly image: string | null
  /** Why the image was not looked into. */
  readonly note: string | null
}

export interface LintOptions extends RuleOptions {
  /** null: the files alone. */
  readonly image: ImageAccess | null
}

export async function lintTask(path: string, options: LintOptions): Promise<LintReport> {
  const directory = await readTaskDirectory(path).catch((error: unknown) => {
    if (systemCode(error) === undefined) throw error
    throw new RunnerError(
      'usage',
      'operator',
      `${path}: no such task directory (${systemCode(error)}); give the directory that holds task.toml`,
    )
  })
  const selection = selectRules(options, selectionOfTask(directory.toml))
  const findings = new Findings()
  const { toml, task } = await checkConfig(findings, directory)
  await checkFiles(findings, directory, toml)
  await checkSuites(findings, directory, task)
  const inside = ruleNames.some((name) => rules[name].looksAt === 'image' && selection.wants(name))
  const instruction = (await directory.text('instruction.md')) ?? ''
  const inImage =
    task ?? (toml === null ? null : await imageFacts(directory.dir, toml, instruction))
  let image: string | null = null
  let note: string | null = null
  if (options.image === null || !inside) note = 'the image was not looked into, as asked'
  else if (inImage === null) note = 'the image was not looked into: nothing says which it is'
  else
    try {
      image = await checkImage(findings, inImage, directory, options.image)
    } catch (error) {
      if (!(error instanceof ClosedbookError) || error.code !== 'image_not_pinned') throw error
      note = 'the image was not looked into: it is not pinned'
    }
  return {
    task: taskNameOf(directory, toml),
    dir: directory.dir,
    findings: withoutRepeats(findings.sorted()).filter((finding) => selection.keeps(finding)),
    image,
    note,
  }
}

/** What the runner refuses in a test script is said once, by the rule that has a name for it. */
const withoutRepeats = (all: readonly Finding[]): readonly Finding[] =>
  all.filter(
    ({ rule, file, line }) =>
      rule !== 'unsupported-feature' ||
      !all.some(
        (other) => other.rule.startsWith('verifier-') && other.file === file && other.line === line,
      ),
  )
