/** `closedbook down`: stops what `up` started, by its recorded pid, and the store's private cluster; nothing else. */
import type { Command } from 'commander'
import { down } from '../host/services.ts'
import { note, printJson, withContext } from './context.ts'

export function addDown(program: Command): void {
  program
    .command('down')
    .description('close every lease and stop what `up` started, and the store of jobs')
    .option('--json', 'print JSON')
    .action(async (_options: object, command: Command) =>
      withContext(command, async ({ config, json }) => {
        const stopped = await down(config)
        if (json) return printJson({ stopped })
        const names = Object.entries(stopped).flatMap(([name, yes]) => (yes ? [name] : []))
        note(names.length === 0 ? '`up` has nothing running here' : `stopped: ${names.join(', ')}`)
      }),
    )
}
