/** `closedbook attach TRIAL|LEASE`: looks over the agent's shoulder; with --control one types. */
import type { Command } from 'commander'
import { attachSession } from '../pty/attach-session.ts'
import { defaultDetachKeys } from '../pty/detach-keys.ts'
import { findSession } from '../pty/find-session.ts'
import { note, withContext } from './context.ts'
import { statusOf } from './exec.ts'

interface AttachOptions {
  pty?: string
  control?: boolean
  detachKeys: string
  controlKeys?: string
}

export function addAttach(program: Command): void {
  program
    .command('attach')
    .description(
      "watch the terminal of a trial or lease; it ends with the program's exit status, or 0 when you leave",
    )
    .argument('<trial|lease>', 'id or the beginning of one')
    .option('--pty <id>', 'which terminal; default: the one of the agent')
    .option('--control', 'type as well; a trial that a person typed into is assisted, never scored')
    .option('--detach-keys <keys>', 'keys that leave it running', defaultDetachKeys)
    .option(
      '--control-keys <keys>',
      'keys that ask for control, and hand it to who asks (default: the first of these, then c)',
    )
    .action(async (text: string, options: AttachOptions, command: Command) =>
      withContext(command, async ({ client, signal }) => {
        const view = await findSession(client, text, options.pty, { signal })
        const end = await attachSession({
          ...{ client, view, signal, say: note },
          control: options.control === true,
          detachKeys: options.detachKeys,
          controlKeys: options.controlKeys,
        })
        if (end === 'detached') return note('closedbook: left; it goes on')
        process.exitCode = statusOf(end.exit)
        note(`closedbook: the program ended (${wordsOf(end)})`)
      }),
    )
}

export function wordsOf({ exit, cause }: { exit: unknown; cause: string }): string {
  const how =
    exit === 'unknown' || typeof exit !== 'object' || exit === null
      ? 'nobody knows how'
      : 'code' in exit
        ? `exit ${String(exit.code)}`
        : `by ${String((exit as { signal: string }).signal)}`
  return cause === 'exited' ? how : `${how}, ${cause.replaceAll('_', ' ')}`
}
