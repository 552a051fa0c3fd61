/** `closedbook`: the command line. One file a verb under commands/; exit statuses in exit-codes.ts. */
import { CommanderError } from 'commander'
import { ClosedbookError } from '../daemon/protocol/errors.ts'
import { Interrupted } from './commands/context.ts'
import { exitCode, exitCodeOf } from './exit-codes.ts'
import { build } from './program.ts'

function fail(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCode.usage
  if (error instanceof Interrupted) {
    process.stderr.write(`closedbook: ${error.message}\n`)
    return exitCode.interrupted
  }
  if (error instanceof ClosedbookError) {
    process.stderr.write(`closedbook: ${error.message}\n`)
    return exitCodeOf(error)
  }
  process.stderr.write(`closedbook: a bug of ours: ${String((error as Error).stack)}\n`)
  return exitCode.software
}

// A terminal or a reader of the progress that went away ends nothing.
process.stderr.on('error', () => {})
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  process.exit(error.code === 'EPIPE' ? 0 : exitCode.cannotWrite)
})

try {
  await build().parseAsync()
} catch (error) {
  process.exitCode = fail(error)
}
