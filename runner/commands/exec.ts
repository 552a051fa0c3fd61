/** `closedbook exec LEASE -- ARGV…`: stdin, stdout, stderr and exit status pass through. */
import { InvalidArgumentError, type Command } from 'commander'
import { constants } from 'node:os'
import { RemoteError } from '../../daemon/protocol/errors.ts'
import type { ExecEnd, Exit } from '../../daemon/protocol/exec-frames.ts'
import { exitCode } from '../exit-codes.ts'
import { note, withContext } from './context.ts'

interface ExecOptions {
  user?: string
  timeout?: number
  workdir?: string
  env: Record<string, string>
}

export function addExec(program: Command): void {
  program
    .command('exec')
    .description('run a command in a lease; its stdin, stdout, stderr and exit status pass through')
    .argument('<lease>', 'id, as `lease open` printed it')
    .argument('<argv...>', 'command and arguments, after --')
    .option('--user <user>', 'user in the sandbox')
    .option('--workdir <dir>', 'working directory')
    .option('--timeout <seconds>', 'kill the whole process tree after so long', seconds)
    .option(
      '--env <name=value>',
      'environment variable; may be repeated',
      (text: string, all: Record<string, string>) => {
        const at = text.indexOf('=')
        if (at < 1) throw new InvalidArgumentError('write it as NAME=VALUE.')
        return { ...all, [text.slice(0, at)]: text.slice(at + 1) }
      },
      {},
    )
    .action(async (lease: string, argv: string[], options: ExecOptions, command: Command) =>
      withContext(command, async ({ client, signal }) => {
        const end = await execOrTell(
          client.exec(
            lease,
            {
              argv,
              env: options.env,
              stdin: true,
              ...(options.user === undefined ? {} : { user: options.user }),
              ...(options.workdir === undefined ? {} : { workdir: options.workdir }),
              ...(options.timeout === undefined
                ? {}
                : { timeoutMs: Math.ceil(options.timeout * 1000) }),
            },
            {
              stdin: process.stdin,
              onStdout: (_offset, bytes) => writeTo(process.stdout, bytes),
              onStderr: (_offset, bytes) => writeTo(process.stderr, bytes),
              signal,
            },
          ),
        )
        process.stdin.destroy()
        if (end === null) return
        if (end.cause === 'timeout') note(`closedbook: ended after ${options.timeout} s`)
        process.exitCode = statusOf(end.exit)
      }),
    )
}

function seconds(text: string): number {
  const value = Number(text)
  if (text.trim() === '' || !Number.isFinite(value) || value <= 0)
    throw new InvalidArgumentError('a number of seconds above zero, such as 60.')
  return value
}

/** A command that can't be started ends as a shell would end it: 127. */
async function execOrTell(running: Promise<ExecEnd>): Promise<ExecEnd | null> {
  try {
    return await running
  } catch (error) {
    if (!(error instanceof RemoteError) || error.code !== 'exec_not_started') throw error
    note(`closedbook: ${error.message}`)
    process.exitCode = exitCode.notStarted
    return null
  }
}

async function writeTo(stream: NodeJS.WriteStream, bytes: Buffer): Promise<void> {
  if (stream.write(bytes)) return
  await new Promise<void>((resolve) => stream.once('drain', resolve))
}

/** As a shell tells it: the code, or 128 and the signal's number. */
export function statusOf(exit: Exit): number {
  if (exit === 'unknown') return exitCode.software
  if ('code' in exit) return exit.code
  return 128 + (constants.signals[exit.signal as NodeJS.Signals] ?? 0)
}
