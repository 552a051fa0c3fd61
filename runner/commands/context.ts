/** What every command gets: settings, a client of the daemon, and a way to print that knows terminals and --json. */
import type { Command } from 'commander'
import { DaemonClient } from '../../daemon/protocol/client.ts'
import { loadRunnerConfig, type RunnerConfig } from '../config.ts'
import { targetOf } from '../target.ts'

export interface GlobalOptions {
  readonly stateDir?: string
  readonly socket?: string
  readonly jobsDir?: string
  readonly url?: string
  readonly token?: string
  readonly ca?: string
  readonly runnerConfig?: string
  readonly json?: boolean
}

export interface Context {
  readonly config: RunnerConfig
  readonly json: boolean
  /** Aborts on the first SIGINT or SIGTERM; in a gentle command on the second SIGINT. */
  readonly signal: AbortSignal
  /** Aborts on the first signal of any kind: what is under way may end. */
  readonly drain: AbortSignal
  readonly client: DaemonClient
}

export async function withContext(
  command: Command,
  work: (context: Context) => Promise<void>,
  { gentle = false }: { readonly gentle?: boolean } = {},
): Promise<void> {
  const options = command.optsWithGlobals<GlobalOptions>()
  const config = await loadRunnerConfig({
    file: options.runnerConfig,
    stateDir: options.stateDir,
    socket: options.socket,
    jobsDir: options.jobsDir,
    url: options.url,
    token: options.token,
    ca: options.ca,
  })
  const interrupted = new AbortController()
  const draining = new AbortController()
  const onSignal = (name: NodeJS.Signals): void => {
    if (gentle && name === 'SIGINT' && !draining.signal.aborted)
      return draining.abort(new Interrupted(name))
    interrupted.abort(new Interrupted(name))
    draining.abort(new Interrupted(name))
    // once more, and it ends at once
    process.off(name, onSignal)
  }
  process.on('SIGINT', onSignal)
  process.on('SIGTERM', onSignal)
  process.on('SIGHUP', onSignal)
  try {
    await using client = new DaemonClient(await targetOf(config))
    await work({
      config,
      json: options.json === true,
      signal: interrupted.signal,
      drain: draining.signal,
      client,
    })
  } finally {
    process.off('SIGINT', onSignal)
    process.off('SIGTERM', onSignal)
    process.off('SIGHUP', onSignal)
  }
}

export class Interrupted extends Error {
  readonly signalName: NodeJS.Signals

  constructor(signalName: NodeJS.Signals) {
    super(`interrupted by ${signalName}`)
    this.name = 'Interrupted'
    this.signalName = signalName
  }
}

/** A reader that went away (`closedbook … | head`) ends the command quietly. */
export function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

export const printJson = (value: unknown): void => print(JSON.stringify(value))

export const note = (text: string): void => void process.stderr.write(`${text}\n`)
