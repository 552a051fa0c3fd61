/** `closedbook dashboard`: the address of the dashboard with a one-time ticket, and a browser on it where there is one. */
import { spawn } from 'node:child_process'
import type { Command } from 'commander'
import { createTicket } from '../../daemon/protocol/auth-client.ts'
import { loginFragment, roles, roleSchema, type Role } from '../../daemon/protocol/auth.ts'
import { originOf } from '../../daemon/protocol/target.ts'
import { RunnerError } from '../errors.ts'
import { note, print, printJson, withContext } from './context.ts'

export function addDashboard(program: Command): void {
  program
    .command('dashboard')
    .description('print (and open) the address of the dashboard, with a ticket that is good once')
    .option('--role <role>', `what it may do there: ${roles.join(', ')}`, roleOf, 'view')
    .option('--no-open', 'only print it')
    .option('--json', 'print JSON')
    .action(async (options: { role: Role; open: boolean }, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const { target } = client
        const base =
          'socketPath' in target ? (await client.health({ signal })).url : originOf(target)
        if (base === null)
          throw new RunnerError(
            'config_invalid',
            'operator',
            'this daemon serves its unix socket alone (server.listen: none); give it an address to listen on, such as 127.0.0.1:8480, and start it again',
          )
        const { ticket, role, expiresAt } = await createTicket(
          client,
          { path: '/', role: options.role },
          { signal },
        )
        const url = `${base}/#${loginFragment}=${ticket}`
        if (json) return printJson({ url, role, expiresAt })
        print(url)
        note(`· good once, until ${expiresAt}; role ${role}`)
        if (options.open && process.stdout.isTTY) openBrowser(url)
      }),
    )
}

function roleOf(text: string): Role {
  const parsed = roleSchema.safeParse(text)
  if (parsed.success) return parsed.data
  throw new RunnerError('usage', 'operator', `"${text}" is no role; there are ${roles.join(', ')}`)
}

/** Only where a person sits before a screen. */
function openBrowser(url: string): void {
  const { DISPLAY, WAYLAND_DISPLAY } = process.env
  const screen =
    process.platform === 'darwin' || DISPLAY !== undefined || WAYLAND_DISPLAY !== undefined
  if (!screen) return
  const opener = process.platform === 'darwin' ? 'open' : 'xdg-open'
  const child = spawn(opener, [url], { stdio: 'ignore', detached: true })
  child.on('error', () => {})
  child.unref()
}
