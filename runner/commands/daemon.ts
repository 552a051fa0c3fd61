/** `closedbook daemon`: the daemon in the foreground, for a service manager. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { ensureTools } from '../../images/tools.ts'
import type { GlobalOptions } from './context.ts'
import { loadRunnerConfig } from '../config.ts'

const daemonProgram = fileURLToPath(new URL('../../daemon/bin/closedbookd.mjs', import.meta.url))

export function addDaemon(program: Command): void {
  program
    .command('daemon')
    .description(
      'run the daemon in the foreground (for a service manager); logs are JSON lines on stdout',
    )
    .option('--config <file>', 'configuration of the daemon (YAML)')
    .option('--engine-socket <path>', 'unix socket of the container engine')
    .option('--log-level <level>', 'debug, info, warn, error or silent')
    .action(
      async (
        options: { config?: string; engineSocket?: string; logLevel?: string },
        command: Command,
      ) => {
        const { stateDir, socket } = command.optsWithGlobals<GlobalOptions>()
        const settings = await loadRunnerConfig({ stateDir, socket })
        await ensureTools(settings.stateDir, {})
        const flags = Object.entries({
          '--config': options.config,
          '--state-dir': settings.stateDir,
          '--engine-socket': options.engineSocket,
          '--log-level': options.logLevel,
        }).flatMap(([flag, value]) => (value === undefined ? [] : [flag, value]))
        const child = spawn(process.execPath, ['--no-warnings', daemonProgram, ...flags], {
          stdio: 'inherit',
          env: { ...process.env, CLOSEDBOOK_SOCKET: settings.socket },
        })
        for (const signal of ['SIGINT', 'SIGTERM'] as const)
          process.on(signal, () => child.kill(signal))
        const [code] = (await once(child, 'exit')) as [number | null]
        process.exitCode = code ?? 1
      },
    )
}
