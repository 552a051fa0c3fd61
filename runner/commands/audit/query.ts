/** `closedbook audit query`: events of all leases that this daemon has seen. */
import { InvalidArgumentError, Option, type Command } from 'commander'
import type { AuditQuery } from '../../../daemon/protocol/audit.ts'
import { auditEventSchema } from '../../../policy/audit-event.ts'
import { note, print, printJson, withContext } from '../context.ts'
import { auditLine } from './shown.ts'

const { kind, protocol, action, reason } = auditEventSchema.shape

const choice = (flags: string, description: string, values: readonly string[]): Option =>
  new Option(flags, description).choices(values)

export function addQuery(audit: Command): void {
  audit
    .command('query')
    .description(
      'events of all leases of this daemon that meet every condition, lease by lease, oldest first',
    )
    .option('--trial <id>', 'leases of this trial')
    .option('--lease <id>', 'this lease')
    .option('--host <name>', 'a name or address, whole; *.name is every name below it')
    .addOption(choice('--reason <word>', 'why it was decided so', reason.unwrap().options))
    .addOption(choice('--protocol <word>', 'how it was tried', protocol.options))
    .addOption(choice('--action <word>', 'what was decided', action.options))
    .addOption(choice('--kind <word>', 'kind of event', kind.options))
    .option(
      '--since <instant>',
      'from then on: 2026-01-31T12:00:00Z, 2026-01-31, or 30m, 12h, 7d ago',
      instant,
    )
    .option('--until <instant>', 'before then', instant)
    .option('--limit <n>', 'at most so many', positive)
    .option('--json', 'one JSON event a line')
    .option('--canaries', 'also show what our own proof tried')
    .option('--denied', 'only what was refused')
    .action(async (_options: object, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const { denied, ...options } = command.optsWithGlobals<AuditQuery & { denied?: boolean }>()
        const query: AuditQuery = {
          ...pick(options),
          ...(denied === true ? { action: 'deny' as const } : {}),
        }
        let count = 0
        for await (const event of client.auditQuery(query, { signal })) {
          count += 1
          if (json) printJson(event)
          else print(`${event.trial ?? event.lease}  ${auditLine(event)}`)
        }
        if (count === 0 && !json) note('no event matches')
      }),
    )
}

const conditions = [
  ...(['trial', 'lease', 'host', 'kind', 'protocol', 'action', 'reason'] as const),
  ...(['since', 'until', 'canaries', 'limit'] as const),
]

/** Without the options that every command has. */
const pick = (options: AuditQuery): AuditQuery =>
  Object.fromEntries(
    conditions.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]),
  )

const unitMs: Readonly<Record<string, number>> = {
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}

/** An instant in ISO 8601, or so long ago. */
export function instant(text: string): string {
  const [, amount, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  if (amount !== undefined)
    return new Date(Date.now() - Number(amount) * (unitMs[unit ?? ''] ?? 0)).toISOString()
  const at = /^\d{4}-\d{2}-\d{2}(T[\d:.]+(Z|[+-]\d{2}:\d{2})?)?$/.test(text) ? new Date(text) : null
  if (at === null || Number.isNaN(at.getTime()))
    throw new InvalidArgumentError(
      'an instant such as 2026-01-31T12:00:00Z, a day, or 30m, 12h, 7d',
    )
  return at.toISOString()
}

function positive(text: string): number {
  if (!/^[1-9]\d{0,14}$/.test(text)) throw new InvalidArgumentError('a number from 1')
  return Number(text)
}
