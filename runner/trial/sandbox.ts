/**
 * What verification needs of a lease: exec, and a tar in and out. The lease client implements it; everything in this
 * folder that touches a container goes through it. A fault of the transport is thrown as a ClosedbookError with blame
 * `infra` (`container_gone`, `engine_unreachable`, …); a path that isn't there as `path_missing`.
 */
import type { Readable } from 'node:stream'
import type { ExecEnd, ExecStartInput } from '../../daemon/protocol/exec-frames.ts'
import { RunnerError } from '../errors.ts'

export interface ExecIo {
  readonly stdin?: Readable | Buffer
  readonly onStdout?: (bytes: Buffer) => void
  readonly onStderr?: (bytes: Buffer) => void
  readonly signal?: AbortSignal
}

export interface Sandbox {
  readonly lease: string
  exec(start: ExecStartInput, io?: ExecIo): Promise<ExecEnd>
  /** The tar of one path; its first entry is the path itself, by its base name. */
  readArchive(
    path: string,
    options?: { signal?: AbortSignal },
  ): Promise<{ kind: 'file' | 'directory' | 'symlink' | 'other'; tar: Readable }>
  writeArchive(path: string, tar: Readable, options?: { signal?: AbortSignal }): Promise<void>
}

export interface Captured {
  readonly end: ExecEnd
  readonly stdout: Buffer
  readonly stderr: Buffer
}

/** Runs one trusted command to its end and keeps all it says; more than `limitBytes` of stdout is an infra error. */
export async function capture(
  sandbox: Sandbox,
  start: ExecStartInput,
  options: {
    stdin?: Readable | Buffer
    limitBytes?: number
    /** Told of each piece as it comes. */
    onStdout?: () => void
    signal?: AbortSignal | undefined
  } = {},
): Promise<Captured> {
  const limitBytes = options.limitBytes ?? 64 * 1024 * 1024
  const overflow = new AbortController()
  const stdout: Buffer[] = []
  const stderr: Buffer[] = []
  let size = 0
  let errorSize = 0
  const end = await sandbox.exec(
    { ...start, stdin: options.stdin !== undefined },
    {
      ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
      onStdout: (bytes) => {
        size += bytes.length
        options.onStdout?.()
        if (size > limitBytes)
          overflow.abort(
            new RunnerError(
              'transfer_failed',
              'infra',
              `${start.argv[0] ?? 'a command'} wrote more than ${limitBytes} bytes`,
            ),
          )
        else stdout.push(bytes)
      },
      onStderr: (bytes) => {
        if (errorSize < 64 * 1024) stderr.push(bytes)
        errorSize += bytes.length
      },
      signal:
        options.signal === undefined
          ? overflow.signal
          : AbortSignal.any([options.signal, overflow.signal]),
    },
  )
  overflow.signal.throwIfAborted()
  if (end.cause === 'container_gone' || end.cause === 'engine_lost' || end.cause === 'disconnected')
    throw new RunnerError(
      'transfer_failed',
      'infra',
      `lease ${sandbox.lease} was lost while ${start.argv[0] ?? 'a command'} ran (${end.cause})`,
    )
  return { end, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr) }
}

/** The exit code, or null where a signal or nobody knows what ended the process. */
export const exitCodeOf = (end: ExecEnd): number | null =>
  typeof end.exit === 'object' && 'code' in end.exit ? end.exit.code : null
