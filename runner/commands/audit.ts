/** `closedbook audit LEASE|TRIAL`: every decision about its traffic, one event a line; its subcommands are in audit/. */
import type { Command } from 'commander'
import { addQuery } from './audit/query.ts'
import { eventsOf, Shown } from './audit/shown.ts'
import { addSummary } from './audit/summary.ts'
import { addTail } from './audit/tail.ts'
import { addVerify } from './audit/verify.ts'
import { note, withContext } from './context.ts'

export function addAudit(program: Command): void {
  const audit = program
    .command('audit')
    .description('what a sandbox tried to reach, when, and what was refused')
    .argument('<lease|trial>')
    .option('--json', 'one JSON event a line')
    .option('--canaries', 'also show what our own proof tried')
    .option('--denied', 'only what was refused')
    .action(async (id: string, _options: object, command: Command) =>
      withContext(command, async (context) => {
        const shown = new Shown(command, context.json)
        for await (const event of eventsOf(id, context)) shown.add(event)
        if (shown.count === 0 && !context.json) note('nothing was tried')
      }),
    )
  for (const add of [addTail, addQuery, addSummary, addVerify]) add(audit)
  // Errors of usage are told by main.ts, as those of every command.
  for (const command of audit.commands) command.exitOverride()
}
