/** `closedbook audit LEASE|TRIAL`: every decision about its traffic, one event a line. */
import type { Command } from 'commander'
import { RemoteError } from '../../daemon/protocol/errors.ts'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { findTrial } from '../job/find-trial.ts'
import { plainLine } from '../report/terminal.ts'
import { readEgressFile } from '../trial/evidence.ts'
import { note, print, printJson, withContext, type Context } from './context.ts'

interface AuditOptions {
  canaries?: boolean
  denied?: boolean
}

export function addAudit(program: Command): void {
  program
    .command('audit')
    .description('what a sandbox tried to reach, when, and what was refused')
    .argument('<lease|trial>')
    .option('--json', 'one JSON event a line')
    .option('--canaries', 'also show what our own proof tried')
    .option('--denied', 'only what was refused')
    .action(async (id: string, options: AuditOptions, command: Command) =>
      withContext(command, async (context) => {
        let shown = 0
        for await (const event of eventsOf(id, context)) {
          if (event.canary === true && options.canaries !== true) continue
          if (options.denied === true && event.action !== 'deny') continue
          shown += 1
          if (context.json) printJson(event)
          else print(auditLine(event))
        }
        if (shown === 0 && !context.json) note('nothing was tried')
      }),
    )
}

/** From the daemon that has the log; when it is down or never had it, from the evidence of the trial. */
async function* eventsOf(
  id: string,
  { client, config, signal }: Context,
): AsyncGenerator<AuditEvent> {
  try {
    yield* client.audit(id, { signal })
  } catch (error) {
    const found = await findTrial(config.jobsDir, id)
    if (!(error instanceof RemoteError) || found === null) throw error
    yield* readEgressFile(found.trialDir)
  }
}

export function auditLine(event: AuditEvent): string {
  const host = event.host ?? event.address ?? '-'
  const target = event.port === null ? host : `${host}:${event.port}`
  const bytes = event.kind === 'close' ? ` ${event.bytesUp} bytes up, ${event.bytesDown} down` : ''
  return plainLine(
    `${event.time}  ${event.action.padEnd(5)} ${event.protocol.padEnd(7)} ${target}  ${event.reason ?? event.kind}` +
      `${event.count > 1 ? ` x${event.count}` : ''}${bytes}${event.detail === undefined ? '' : `  ${event.detail}`}`,
  )
}
