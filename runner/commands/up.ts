/** `closedbook up`: the daemon in the background, and a private engine where none answers. */
import type { Command } from 'commander'
import { up } from '../host/services.ts'
import { note, printJson, withContext } from './context.ts'

export function addUp(program: Command): void {
  program
    .command('up')
    .description('start the daemon in the background, and a private engine where none answers')
    .option('--daemon-config <file>', 'configuration of the daemon (YAML)')
    .option('--json', 'print JSON')
    .action(async (options: { daemonConfig?: string }, command: Command) =>
      withContext(command, async ({ config, json }) => {
        const { health, started } = await up({
          config,
          say: (what) => note(`· ${what}`),
          ...(options.daemonConfig === undefined ? {} : { daemonConfig: options.daemonConfig }),
        })
        if (json) return printJson({ ...health, socket: config.socket, started })
        note(
          `${started.daemon ? 'the daemon is up' : 'a daemon was already up'}: ${config.socket} (engine ${health.engine} on ${health.engineSocket})`,
        )
      }),
    )
}
