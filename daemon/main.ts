/** `closedbookd`: one daemon in the foreground, until SIGTERM, SIGINT or a shutdown request. */
import { parseArgs } from 'node:util'
import { loadDaemonConfig } from './config.ts'
import { Daemon } from './daemon.ts'
import { ClosedbookError } from './errors.ts'

const usage = `usage: closedbookd [--config FILE] [--state-dir DIR] [--engine-socket PATH] [--log-level LEVEL]

Serves the lease API on a unix socket (default: <state dir>/daemon.sock). Exit status: 0 ended by request,
1 failed, 69 no engine, 2 usage, 75 a daemon already runs, 77 not root, 78 bad configuration.
`

const exitCodes: Readonly<Record<string, number>> = {
  config_invalid: 78,
  not_root: 77,
  daemon_running: 75,
  port_busy: 75,
  journal_corrupt: 65,
  tool_missing: 69,
  engine_unreachable: 69,
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      config: { type: 'string' },
      'state-dir': { type: 'string' },
      'engine-socket': { type: 'string' },
      'log-level': { type: 'string' },
      help: { type: 'boolean', short: 'h' },
    },
  })
  if (values.help === true) {
    process.stdout.write(usage)
    return
  }
  const config = loadDaemonConfig({
    ...(values.config === undefined ? {} : { file: values.config }),
    flags: {
      stateDir: values['state-dir'],
      engineSocket: values['engine-socket'],
      logLevel: values['log-level'],
    },
  })
  await using daemon = await Daemon.open(config)
  process.send?.({ ready: true, socket: daemon.socket })
  const signalled = new Promise<void>((resolve) => {
    process.once('SIGTERM', () => resolve())
    process.once('SIGINT', () => resolve())
    process.once('SIGHUP', () => resolve())
    // Whoever started it over IPC waits for it; when that process is gone, nobody does.
    process.once('disconnect', () => resolve())
  })
  await Promise.race([daemon.ended, signalled])
}

try {
  await main()
  process.exit(0)
} catch (error) {
  if ((error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS') === true) {
    process.stderr.write(`closedbookd: ${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
  const known = error instanceof ClosedbookError
  process.stderr.write(`closedbookd: ${known ? error.message : String((error as Error).stack)}\n`)
  process.exit(known ? (exitCodes[error.code] ?? 1) : 1)
}
