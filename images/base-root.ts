/**
 * The base root file system, made by debootstrap in mount and PID namespaces of its own: ending the one child ends all
 * of it and unmounts what it mounted.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { EngineError, HostError } from '../daemon/errors.ts'
import type { Digests } from './digests.ts'

const script = fileURLToPath(new URL('base/build.sh', import.meta.url))
const keptLines = 20

/** Calls `take` with the tar as it is made; it fails, and `take` sees a broken stream, if any step fails. */
export async function withBaseRoot<T>(
  pins: Digests['base'],
  options: {
    stateDir: string
    mirror?: string | undefined
    onLine: (line: string) => void
    signal?: AbortSignal | undefined
  },
  take: (root: Readable) => Promise<T>,
): Promise<T> {
  if (process.getuid?.() !== 0)
    throw new HostError(
      'not_root',
      'operator',
      'The base image is made with debootstrap, which needs root: run this command as root.',
    )
  await mkdir(options.stateDir, { recursive: true })
  const scratch = await mkdtemp(join(options.stateDir, 'base-'))
  try {
    const mirror = options.mirror === undefined ? [] : [options.mirror]
    const argv = ['sh', script, pins.suite, pins.packages.join(','), scratch, ...mirror]
    const child = spawn('unshare', ['--mount', '--pid', '--fork', '--kill-child', ...argv], {
      stdio: ['ignore', 'pipe', 'pipe'],
      killSignal: 'SIGKILL',
      env: { ...process.env, PATH: `${process.env['PATH'] ?? ''}:/usr/sbin:/usr/bin:/sbin:/bin` },
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    })
    const last: string[] = []
    const words = collectLines(child.stderr, (line) => {
      last.push(line)
      if (last.length > keptLines) last.shift()
      options.onLine(line)
    })
    const ended = once(child, 'close').then(
      ([code]: unknown[]) => (code === 0 ? undefined : buildFailed(String(code), last)),
      (error: unknown) => hostError(error),
    )
    const root = new PassThrough()
    const fed = pipeline(child.stdout, root, { end: false }).then(
      async () => {
        await words
        const failure = await ended
        if (failure === undefined) root.end()
        else root.destroy(failure)
      },
      (error: unknown) => {
        child.kill('SIGKILL')
        root.destroy(error instanceof Error ? error : undefined)
      },
    )
    try {
      const [taken] = await Promise.all([take(root), fed])
      return taken
    } catch (error) {
      child.kill('SIGKILL')
      options.signal?.throwIfAborted()
      throw (await ended) ?? error
    }
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

async function collectLines(stream: Readable, onLine: (line: string) => void): Promise<void> {
  let rest = ''
  for await (const chunk of stream.setEncoding('utf8') as AsyncIterable<string>) {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) if (line.trim() !== '') onLine(line)
  }
  if (rest.trim() !== '') onLine(rest)
}

const buildFailed = (code: string, last: readonly string[]): Error =>
  code === '127'
    ? toolMissing('debootstrap')
    : new EngineError(
        'image_build_failed',
        'operator',
        `The base root file system could not be made (exit ${code}). Check that this machine reaches its Debian mirror.\n${last.join('\n')}`.trim(),
        { facts: { lastLines: [...last] } },
      )

function hostError(error: unknown): Error {
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
    return toolMissing('unshare')
  return error instanceof Error ? error : new Error(String(error))
}

const toolMissing = (tool: string): HostError =>
  new HostError(
    'tool_missing',
    'operator',
    `The base image needs ${tool}: apt-get install util-linux debootstrap`,
  )
