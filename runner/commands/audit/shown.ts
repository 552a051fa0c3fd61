/** Audit events on their way to the reader: where they come from, which of them are shown, and how a line looks. */
import type { Command } from 'commander'
import { RemoteError } from '../../../daemon/protocol/errors.ts'
import type { AuditEvent } from '../../../policy/audit-event.ts'
import { findTrial } from '../../job/find-trial.ts'
import { plainLine } from '../../report/terminal.ts'
import { readEgressFile } from '../../trial/evidence.ts'
import { print, printJson, type Context } from '../context.ts'

interface ShownOptions {
  readonly canaries?: boolean
  readonly denied?: boolean
}

export class Shown {
  count = 0
  readonly #options: ShownOptions
  readonly #json: boolean

  constructor(command: Command, json: boolean) {
    this.#options = command.optsWithGlobals<ShownOptions>()
    this.#json = json
  }

  wants(event: AuditEvent): boolean {
    const { canaries, denied } = this.#options
    if (event.canary === true && canaries !== true) return false
    return denied !== true || event.action === 'deny'
  }

  add(event: AuditEvent): void {
    if (!this.wants(event)) return
    this.count += 1
    if (this.#json) printJson(event)
    else print(auditLine(event))
  }
}

/** From the daemon that has the log; when it is down or never had it, from the evidence of the trial. */
export async function* eventsOf(
  id: string,
  { client, config, signal }: Pick<Context, 'client' | 'config' | 'signal'>,
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
