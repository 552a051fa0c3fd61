/** `closedbook shell TRIAL|LEASE`: a terminal of one's own in a sandbox. In a trial's it makes the trial assisted. */
import type { Command } from 'commander'
import { RunnerError } from '../errors.ts'
import { attachSession } from '../pty/attach-session.ts'
import { defaultDetachKeys } from '../pty/detach-keys.ts'
import { findLeases } from '../pty/find-session.ts'
import { wordsOf } from './attach.ts'
import { note, withContext } from './context.ts'
import { statusOf } from './exec.ts'

interface ShellOptions {
  user?: string
  workdir?: string
  detachKeys: string
  readOnly?: boolean
  keep?: boolean
}

/** The image's bash where it has one, else its sh, else ours. */
const login = [
  '/.closedbook/busybox',
  'sh',
  '-c',
  '[ -x /bin/bash ] && exec /bin/bash; [ -x /bin/sh ] && exec /bin/sh; exec /.closedbook/busybox sh',
]

export function addShell(program: Command): void {
  program
    .command('shell')
    .description('open a terminal of your own in the sandbox of a trial or lease')
    .argument('<trial|lease>', 'id or the beginning of one')
    .argument('[argv...]', 'program and arguments, after --; default: a shell')
    .option('--user <user>', 'user in the sandbox')
    .option('--workdir <dir>', 'working directory')
    .option('--keep', 'leave it running when you leave it; `attach` finds it again')
    .option('--read-only', 'refused: see its words')
    .option('--detach-keys <keys>', 'keys that leave it', defaultDetachKeys)
    .action(async (text: string, argv: string[], options: ShellOptions, command: Command) =>
      withContext(command, async ({ client, signal }) => {
        if (options.readOnly === true)
          throw new RunnerError(
            'usage',
            'operator',
            'a shell in the same sandbox can always disturb what runs there (its memory, its processes, its CPU), so there is none that is read-only; `closedbook attach` looks on and touches nothing',
          )
        if (!process.stdin.isTTY || !process.stdout.isTTY)
          throw new RunnerError(
            'usage',
            'operator',
            'a shell needs a terminal on stdin and stdout; `closedbook exec` runs commands without one',
          )
        const leases = (await findLeases(client, text, { signal })).filter(
          ({ state }) => state === 'ready',
        )
        // Of a trial: the sandbox that the agent works in, and not the one of its harness.
        const lease =
          leases.find(({ lease: id }) => id.startsWith(text)) ??
          leases.find(({ execInto }) => execInto === undefined)
        if (lease === undefined)
          throw new RunnerError('usage', 'operator', `no sandbox of ${text} is ready for a shell`)
        if (lease.trial !== null)
          note(
            'closedbook: a person in its sandbox makes the trial assisted: recorded, never scored',
          )
        const view = await client.openPty(lease.lease, {
          argv: argv.length > 0 ? argv : login,
          role: 'person',
          hold: true,
          cols: process.stdout.columns || 80,
          rows: process.stdout.rows || 24,
          ...(options.user === undefined ? {} : { user: options.user }),
          ...(options.workdir === undefined ? {} : { cwd: options.workdir }),
        })
        try {
          const end = await attachSession({
            ...{ client, view, signal, say: note },
            control: true,
            detachKeys: options.detachKeys,
          })
          if (end === 'detached') return note(`closedbook: left terminal ${view.pty}`)
          process.exitCode = statusOf(end.exit)
          if (end.cause !== 'exited') note(`closedbook: the shell ended (${wordsOf(end)})`)
        } finally {
          if (options.keep !== true) await client.closePty(lease.lease, view.pty).catch(() => {})
        }
      }),
    )
}
