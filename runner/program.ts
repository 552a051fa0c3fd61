/** The command line as commander knows it: one file a verb under commands/. */
import { Command } from 'commander'
import { addAttach } from './commands/attach.ts'
import { addAudit } from './commands/audit.ts'
import { addCancel } from './commands/cancel.ts'
import { addCompare } from './commands/compare.ts'
import { addCompletion } from './commands/completion.ts'
import { addDaemon } from './commands/daemon.ts'
import { addDashboard } from './commands/dashboard.ts'
import { addDoctor } from './commands/doctor.ts'
import { addDown } from './commands/down.ts'
import { addExec } from './commands/exec.ts'
import { addGpus } from './commands/gpus.ts'
import { improveHelp } from './commands/help.ts'
import { addHosts } from './commands/hosts.ts'
import { addImages } from './commands/images.ts'
import { addLease } from './commands/lease.ts'
import { addLogs } from './commands/logs.ts'
import { addPlan } from './commands/plan.ts'
import { addPolicy } from './commands/policy.ts'
import { addProbe } from './commands/probe.ts'
import { addPs } from './commands/ps.ts'
import { addQualify } from './commands/qualify.ts'
import { addRegrade } from './commands/regrade.ts'
import { addReport } from './commands/report.ts'
import { addReplay } from './commands/replay.ts'
import { addResume } from './commands/resume.ts'
import { addReview } from './commands/review.ts'
import { addRun } from './commands/run.ts'
import { addSelftest } from './commands/selftest.ts'
import { addTask } from './commands/task/task.ts'
import { addShell } from './commands/shell.ts'
import { addToken } from './commands/token.ts'
import { addUp } from './commands/up.ts'
import { addWorker } from './commands/worker.ts'
import { exitCodeMeanings } from './exit-codes.ts'
import { packageVersion } from '../daemon/protocol/version.ts'

export function build(): Command {
  const program = new Command('closedbook')
    .description('Sealed sandboxes for coding agents, and trials whose scores can be believed.')
    .version(packageVersion)
    .option('--state-dir <dir>', 'where daemon and runner keep what they know')
    .option('--socket <path>', "the daemon's socket")
    .option('--jobs-dir <dir>', 'where jobs and their results are')
    .option('--url <url>', 'a daemon elsewhere, https://host:port')
    .option('--token <token>', 'for --url; better as CLOSEDBOOK_TOKEN')
    .option('--ca <file>', 'certificates that --url is trusted by (PEM)')
    .option('--runner-config <file>', 'settings of the runner (YAML or JSON)')
    .option('--json', 'print JSON for programs')
    .showHelpAfterError('(--help shows what there is)')
    .addHelpText(
      'after',
      () =>
        `\nExit status:\n${exitCodeMeanings.map(([code, meaning]) => `  ${String(code).padEnd(4)}${meaning}`).join('\n')}`,
    )
  for (const add of [addUp, addDown, addDaemon, addDoctor, addImages]) add(program)
  for (const add of [addPlan, addRun, addResume, addCancel, addWorker, addPs, addLogs]) add(program)
  for (const add of [addReport, addCompare, addRegrade]) add(program)
  for (const add of [addTask, addQualify, addProbe, addReview]) add(program)
  for (const add of [addLease, addExec, addAudit, addHosts, addGpus]) add(program)
  for (const add of [addAttach, addShell, addReplay]) add(program)
  for (const add of [addToken, addDashboard]) add(program)
  for (const add of [addPolicy, addSelftest, addCompletion]) add(program)
  const commands = withNested(program)
  for (const command of commands) command.exitOverride()
  improveHelp(program, commands)
  return program
}

export const withNested = (command: Command): Command[] => [
  command,
  ...command.commands.flatMap((nested) => withNested(nested)),
]
