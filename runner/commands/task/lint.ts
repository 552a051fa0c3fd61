/**
 * `closedbook task lint`: rules over tasks. Its exit status is its own, the same as that of other linters: 0 clean, 1
 * findings, 2 lint itself failed (no daemon, an image that can't be built, an unknown rule).
 */
import type { Command } from 'commander'
import { ClosedbookError } from '../../../daemon/protocol/errors.ts'
import { wantsColor } from '../../report/terminal.ts'
import { lintTask, type LintReport } from '../../task/lint/lint.ts'
import { renderReport, renderRules } from '../../task/lint/render.ts'
import { selectRules, type RuleOptions } from '../../task/lint/selection.ts'
import { ruleNames, rules } from '../../task/lint/rules.ts'
import { note, print, printJson, withContext } from '../context.ts'

interface LintFlags extends RuleOptions {
  image: boolean
  rules?: boolean
}

const status = { clean: 0, findings: 1, failed: 2 } as const

export function addTaskLint(task: Command): void {
  const list = (text: string, before: string[] = []): string[] => [...before, ...text.split(',')]
  task
    .command('lint')
    .description('look for mistakes, leaks and loose ends in tasks and in their images')
    .argument('[dir...]', 'task directories')
    .option('--select <rules>', 'these rules only, by name with commas between; ALL for all', list)
    .option('--extend-select <rules>', 'these as well', list)
    .option('--ignore <rules>', 'not these; rule:glob for matching files alone', list)
    .option('--no-image', 'look at the files alone: needs no daemon')
    .option('--rules', 'list the rules and end')
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExit status: 0 clean, 1 findings, 2 lint itself failed')
    .action(async (dirs: string[], flags: LintFlags, command: Command) => {
      if (flags.rules === true) return listRules(command)
      if (dirs.length === 0) command.error('error: give at least one task directory')
      await withContext(command, async ({ client, config, json, signal }) => {
        // A name that is no rule is an error before anything is looked at.
        selectRules(flags)
        const say = (what: string): void => note(`· ${what}`)
        const image = flags.image ? { client, stateDir: config.stateDir, say, signal } : null
        const tasks: (LintReport | { dir: string; error: string })[] = []
        for (const dir of dirs)
          try {
            const report = await lintTask(dir, { ...flags, image })
            tasks.push(report)
            const color = wantsColor(process.stdout, process.env)
            if (!json) print(renderReport(report, { color }))
          } catch (error) {
            if (!(error instanceof ClosedbookError) || signal.aborted) throw error
            tasks.push({ dir, error: hintFor(error) })
            note(`closedbook: ${hintFor(error)}`)
          }
        if (json) printJson({ tasks })
        process.exitCode = tasks.some((one) => 'error' in one)
          ? status.failed
          : tasks.some((one) => 'findings' in one && one.findings.length > 0)
            ? status.findings
            : status.clean
      })
    })
}

const hintFor = (error: ClosedbookError): string =>
  error.code === 'daemon_unreachable'
    ? `${error.message}, or give --no-image to look at the files alone`
    : error.message

function listRules(command: Command): void {
  const json = command.optsWithGlobals<{ json?: boolean }>().json === true
  if (json) printJson({ rules: ruleNames.map((name) => ({ name, ...rules[name] })) })
  else print(renderRules())
}
