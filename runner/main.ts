/** `closedbook`: the command line. One file a verb under commands/; exit statuses in exit-codes.ts. */
import { Command, CommanderError } from 'commander'
import { ClosedbookError } from '../daemon/protocol/errors.ts'
import { addAudit } from './commands/audit.ts'
import { Interrupted } from './commands/context.ts'
import { addDaemon } from './commands/daemon.ts'
import { addDoctor } from './commands/doctor.ts'
import { addDown } from './commands/down.ts'
import { addExec } from './commands/exec.ts'
import { addGpus } from './commands/gpus.ts'
import { addImages } from './commands/images.ts'
import { addLease } from './commands/lease.ts'
import { addLogs } from './commands/logs.ts'
import { addPolicy } from './commands/policy.ts'
import { addPs } from './commands/ps.ts'
import { addReport } from './commands/report.ts'
import { addResume } from './commands/resume.ts'
import { addRun } from './commands/run.ts'
import { addSelftest } from './commands/selftest.ts'
import { addUp } from './commands/up.ts'
import { exitCode, exitCodeMeanings, exitCodeOf } from './exit-codes.ts'
import { packageVersion } from '../daemon/protocol/version.ts'

function build(): Command {
  const program = new Command('closedbook')
    .description('Sealed sandboxes for coding agents, and trials whose scores can be believed.')
    .version(packageVersion)
    .option('--state-dir <dir>', 'where daemon and runner keep what they know')
    .option('--socket <path>', "the daemon's socket")
    .option('--jobs-dir <dir>', 'where jobs and their results are')
    .option('--runner-config <file>', 'settings of the runner (YAML or JSON)')
    .option('--json', 'print JSON for programs')
    .showHelpAfterError('(--help shows what there is)')
    .addHelpText(
      'after',
      () =>
        `\nExit status:\n${exitCodeMeanings.map(([code, meaning]) => `  ${String(code).padEnd(4)}${meaning}`).join('\n')}`,
    )
  for (const add of [addUp, addDown, addDaemon, addDoctor, addImages]) add(program)
  for (const add of [addRun, addResume, addPs, addLogs, addReport]) add(program)
  for (const add of [addLease, addExec, addAudit, addGpus]) add(program)
  for (const add of [addPolicy, addSelftest]) add(program)
  for (const command of withNested(program)) command.exitOverride()
  return program
}

const withNested = (command: Command): Command[] => [
  command,
  ...command.commands.flatMap((nested) => withNested(nested)),
]

function fail(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCode.usage
  if (error instanceof Interrupted) {
    process.stderr.write(`closedbook: ${error.message}\n`)
    return exitCode.interrupted
  }
  if (error instanceof ClosedbookError) {
    process.stderr.write(`closedbook: ${error.message}\n`)
    return exitCodeOf(error)
  }
  process.stderr.write(`closedbook: a bug of ours: ${String((error as Error).stack)}\n`)
  return exitCode.software
}

// A terminal or a reader of the progress that went away ends nothing.
process.stderr.on('error', () => {})
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  process.exit(error.code === 'EPIPE' ? 0 : exitCode.cannotWrite)
})

try {
  await build().parseAsync()
} catch (error) {
  process.exitCode = fail(error)
}
