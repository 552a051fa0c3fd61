/** `closedbook worker`: claims trials of any open job beside this host's daemon. */
import os from 'node:os'
import type { Command } from 'commander'
import { RunnerError } from '../errors.ts'
import type { HardwareClass } from '../store/queue.ts'
import { note, withContext, type Context } from './context.ts'
import { Progress } from './progress.ts'
import { count } from './run.ts'

interface WorkerFlags {
  store?: string
  slots?: number
  classes?: HardwareClass[]
  untilIdle?: boolean
}

export function addWorker(program: Command): void {
  program
    .command('worker')
    .description('run trials of any open job beside the daemon of this host')
    .option(
      '--store <url>',
      'postgresql://… of the fleet, or the state directory of a runner on this host; default: DATABASE_URL, else its own',
    )
    .option('--slots <n>', 'trials at a time', count)
    .option('--classes <list>', 'cpu, h100 or both; default: what the daemon has', classesOption)
    .option('--until-idle', 'end when nothing is queued that it could run (for batch systems)')
    .action(async (options: WorkerFlags, command: Command) =>
      withContext(command, (context) => start(context, options), { gentle: true }),
    )
}

function classesOption(text: string): HardwareClass[] {
  const classes = text.split(',').map((name) => name.trim())
  for (const name of classes)
    if (name !== 'cpu' && name !== 'h100')
      throw new RunnerError('usage', 'operator', `--classes: "${name}" is not cpu or h100`)
  return classes as HardwareClass[]
}

async function start(context: Context, options: WorkerFlags): Promise<void> {
  const { client, signal, drain } = context
  const config = {
    ...context.config,
    ...(options.store !== undefined && { databaseUrl: options.store }),
  }
  const facts = await client.host({ signal })
  const { classesOf } = await import('../job/start-job.ts')
  const here = await classesOf(context)
  const classes = options.classes ?? here
  if (classes.includes('h100') && !here.includes('h100'))
    throw new RunnerError(
      'usage',
      'operator',
      `--classes: the daemon of host ${facts.name} has no H100 to lend; see closedbook gpus`,
    )
  const slots = options.slots ?? Math.max(1, Math.min(8, os.availableParallelism()))
  const { Store } = await import('../store/store.ts')
  const { serve } = await import('../worker/serve.ts')
  await using store = await Store.open(config, signal)
  using progress = new Progress()
  const say = (what: string): void => progress.say(`· ${what}`)
  store.onLost((lost) => say(lost ? 'the store is gone; what runs goes on' : 'the store is back'))
  drain.addEventListener('abort', () => {
    if (!signal.aborted)
      say('no further trial is claimed; those that run are finished (again: stop them)')
  })
  say(`worker on ${facts.name}: ${classes.join(' and ')}, ${slots} at a time`)
  const { untilIdle = false } = options
  await serve({
    store,
    config,
    client,
    slots,
    classes,
    watch: progress,
    say,
    drain,
    signal,
    untilIdle,
  })
  note('worker: stopped')
}
