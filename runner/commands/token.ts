/** `closedbook token create|list|revoke`: who may use this daemon over a network, and as what. */
import type { Command } from 'commander'
import { createToken, listTokens, revokeToken } from '../../daemon/protocol/auth-client.ts'
import { roles, roleSchema, type Role, type TokenView } from '../../daemon/protocol/auth.ts'
import { RunnerError } from '../errors.ts'
import { note, print, printJson, withContext } from './context.ts'

interface CreateOptions {
  role: Role
  name: string
  expires?: number
}

export function addToken(program: Command): void {
  const token = program
    .command('token')
    .description('tokens for commands and dashboards on other hosts: make, list, revoke')

  token
    .command('create')
    .description('make a token; it is printed once, and the daemon keeps only its digest')
    .requiredOption(
      '--role <role>',
      `${roles.join(', ')}: view reads, run opens sandboxes and types, admin manages tokens`,
      roleOf,
    )
    .option('--name <name>', 'whose it is, for lists and logs', 'unnamed')
    .option('--expires <duration>', 'such as 90m, 12h or 30d; default: when it is revoked', seconds)
    .option('--json', 'print JSON')
    .action(async (options: CreateOptions, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const { role, name, expires } = options
        const made = await createToken(
          client,
          { role, name, ...(expires === undefined ? {} : { expiresInSeconds: expires }) },
          { signal },
        )
        if (json) return printJson(made)
        note(`· ${made.id}, role ${made.role}, ${untilText(made)}; it is shown this once:`)
        print(made.token)
      }),
    )

  token
    .command('list')
    .description('tokens and open sessions of dashboards, without their secrets')
    .option('--json', 'print JSON')
    .action(async (_options: object, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const tokens = await listTokens(client, { signal })
        if (json) return printJson({ tokens })
        for (const one of tokens) print(line(one))
        if (tokens.length === 0) note('no token; `closedbook token create --role view` makes one')
      }),
    )

  token
    .command('revoke')
    .description('end a token or session at once, with its sockets and the sessions it opened')
    .argument('<token>', 'its id, or the token itself')
    .option('--json', 'print JSON')
    .action(async (text: string, _options: object, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const revoked = await revokeToken(client, text, { signal })
        if (json) return printJson(revoked)
        note(`· ${revoked.id} (${revoked.name}, ${revoked.role}) is revoked`)
      }),
    )
}

function roleOf(text: string): Role {
  const parsed = roleSchema.safeParse(text)
  if (parsed.success) return parsed.data
  throw new RunnerError('usage', 'operator', `"${text}" is no role; there are ${roles.join(', ')}`)
}

const unitSeconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 }

function seconds(text: string): number {
  const [, count = '', unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  const value = Number(count) * (unitSeconds[unit] ?? NaN)
  if (Number.isFinite(value) && value > 0) return value
  throw new RunnerError('usage', 'operator', `"${text}" is no duration; write 90m, 12h or 30d`)
}

const untilText = ({ expiresAt }: Pick<TokenView, 'expiresAt'>): string =>
  expiresAt === null ? 'until it is revoked' : `until ${expiresAt}`

const line = (token: TokenView): string =>
  [
    token.id,
    token.kind.padEnd(7),
    token.role.padEnd(5),
    token.name,
    untilText(token),
    token.lastUsedAt === null ? 'not used since the daemon started' : `used ${token.lastUsedAt}`,
  ].join('  ')
