/** `closedbook hosts`: this daemon's host, and every host whose workers the store of jobs knows. */
import type { Command } from 'commander'
import type { HostFacts } from '../../daemon/protocol/lease.ts'
import { note, print, printJson, withContext, type Context } from './context.ts'

interface Working {
  readonly host: string
  readonly worker: string
  readonly state: 'up' | 'draining' | 'gone'
  readonly classes: readonly string[]
  readonly slots: number
  readonly silentSeconds: number
}

export function addHosts(program: Command): void {
  program
    .command('hosts')
    .description('this host, and the hosts whose workers claim trials from the same store')
    .option('--all', 'workers that ended, too')
    .option('--json', 'print JSON')
    .action(async (options: { all?: boolean }, command: Command) =>
      withContext(command, async ({ client, config, json, signal }) => {
        const facts = await client.host({ signal })
        const known = await workers(config)
        const shown = options.all === true ? known : known.filter(({ state }) => state !== 'gone')
        if (json) return printJson({ host: facts, workers: shown })
        print(hostLine(facts))
        for (const one of shown) print(workerLine(one))
        if (shown.length === 0)
          note(
            'no worker is up; `closedbook run` has its own while it runs, and `closedbook worker` starts one',
          )
      }),
    )
}

async function workers(config: Context['config']): Promise<Working[]> {
  const { Store } = await import('../store/store.ts')
  await using store = await Store.openIfThere(config)
  if (store === null) return []
  const { allWorkers } = await import('../store/workers.ts')
  return await allWorkers(store)
}

const hostLine = ({ name, engine, kernel, cpus, memoryBytes, gpus }: HostFacts): string =>
  `${name}  engine ${engine}, Linux ${kernel}, ${cpus} CPUs, ${Math.round(memoryBytes / 1024 ** 3)} GiB, ` +
  (gpus.length === 0 ? 'no GPU' : `${gpus.length} x ${gpus[0]?.name ?? 'GPU'}`)

const workerLine = ({ worker, host, state, classes, slots, silentSeconds }: Working): string =>
  `${worker}  on ${host}, ${state}, ${classes.join(' and ')}, ${slots} at a time, heard of ${Math.round(silentSeconds)} s ago`
