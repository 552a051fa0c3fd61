/**
 * The base root file system, made by debootstrap in mount and PID namespaces of its own: ending the one child ends all
 * of it and unmounts what it mounted.
 */
import { spawn } from 'node:child_process'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { EngineError, HostError } from '../daemon/errors.ts'
import type { Digests } from './digests.ts'
import { feed } from './feed.ts'

const script = fileURLToPath(new URL('base/build.sh', import.meta.url))
const keptLines = 20

/** Calls `take` with the tar as it is made; if any step fails, `take` is aborted and this throws what went wrong. */
export async function withBaseRoot<T>(
  pins: Digests['base'],
  options: {
    stateDir: string
    mirror?: string | undefined
    onLine: (line: string) => void
    signal?: AbortSignal | undefined
  },
  take: (root: Readable, signal: AbortSignal) => Promise<T>,
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
    let notStarted: Error | undefined
    child.on('error', (error) => (notStarted = error))
    // Its pipes close when the last of its children is gone, so nothing writes to the scratch folder after this.
    const ended = new Promise<Error | undefined>((resolve) => {
      child.once('close', (code) => {
        if (code === 0) resolve(undefined)
        else resolve(notStarted === undefined ? buildFailed(code, last) : hostError(notStarted))
      })
    })
    const root = new PassThrough()
    const fed = pipeline(child.stdout, root, { end: false }).then(
      async () => {
        await words
        const failure = await ended
        if (failure === undefined) root.end()
        else root.destroy(failure)
      },
      (error: unknown) => root.destroy(error instanceof Error ? error : undefined),
    )
    try {
      const taken = await feed(root, options.signal, (signal) => take(root, signal))
      await fed
      return taken
    } catch (error) {
      child.kill('SIGKILL')
      const failure = await ended
      options.signal?.throwIfAborted()
      throw failure ?? error
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

const buildFailed = (code: number | null, last: readonly string[]): Error =>
  code === 127
    ? toolMissing('debootstrap')
    : new EngineError(
        'image_build_failed',
        'operator',
        `The base root file system could not be made (exit ${code ?? 'by a signal'}). Check that this machine reaches its Debian mirror.\n${last.join('\n')}`.trim(),
        { facts: { lastLines: [...last] } },
      )

const hostError = (error: Error): Error =>
  'code' in error && error.code === 'ENOENT' ? toolMissing('unshare') : error

const toolMissing = (tool: string): HostError =>
  new HostError(
    'tool_missing',
    'operator',
    `The base image needs ${tool}: apt-get install util-linux debootstrap`,
  )
