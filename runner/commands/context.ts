/** What every command gets: settings, a client of the daemon, and a way to print that knows terminals and --json. */
import type { Command } from 'commander'
import { DaemonClient } from '../../daemon/protocol/client.ts'
import { loadRunnerConfig, type RunnerConfig } from '../config.ts'

export interface GlobalOptions {
  readonly stateDir?: string
  readonly socket?: string
  readonly jobsDir?: string
  readonly runnerConfig?: string
  readonly json?: boolean
}

export interface Context {
  readonly config: RunnerConfig
  readonly json: boolean
  /** Aborts on the first SIGINT or SIGTERM. */
  readonly signal: AbortSignal
  readonly client: DaemonClient
}

export async function withContext(
  command: Command,
  work: (context: Context) => Promise<void>,
): Promise<void> {
  const options = command.optsWithGlobals<GlobalOptions>()
  const config = await loadRunnerConfig({
    file: options.runnerConfig,
    stateDir: options.stateDir,
    socket: options.socket,
    jobsDir: options.jobsDir,
  })
  const interrupted = new AbortController()
  const onSignal = (name: NodeJS.Signals): void => interrupted.abort(new Interrupted(name))
  process.once('SIGINT', onSignal)
  process.once('SIGTERM', onSignal)
  process.once('SIGHUP', onSignal)
  try {
    await using client = new DaemonClient(config.socket)
    await work({ config, json: options.json === true, signal: interrupted.signal, client })
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
