/**
 * The client's side of `closedbook.exec.v1`: one command over one upgraded HTTP connection. Resolves with the server's
 * EXIT once every byte of output has been taken; throws RemoteError for a refusal, an ERROR frame, or a connection that
 * was lost before the end, which is never the command's own end.
 */
import { request } from 'node:http'
import type { IncomingMessage } from 'node:http'
import type { Duplex, Readable } from 'node:stream'
import {
  decodeOutput,
  encodeFrame,
  encodeJsonFrame,
  execEndSchema,
  execProtocol,
  FrameReader,
  frameType,
  stdinWindowBytes,
} from './exec-frames.ts'
import type { ExecEnd, ExecStartInput } from './exec-frames.ts'
import { RemoteError } from './errors.ts'
import type { Blame } from './errors.ts'
import { wireErrorSchema } from './lease.ts'
import { requestOf, targetName, type DaemonTarget } from './target.ts'

export interface ExecTarget {
  /** A daemon, with what it takes to be let in; or else one of those below. */
  readonly daemon?: DaemonTarget
  readonly socketPath?: string
  readonly host?: string
  readonly port?: number
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
}

/** `offset` counts the stream's own bytes: a jump is output that was dropped by the limit. */
export type TakeOutput = (offset: number, bytes: Buffer) => void | Promise<void>

export interface ExecIo {
  readonly onStarted?: (exec: string) => void
  /** Awaited: output that is not taken makes the command wait. */
  readonly onStdout?: TakeOutput
  readonly onStderr?: TakeOutput
  /** Read from until the command ends, then paused. Absent: the command's stdin is empty unless START says otherwise. */
  readonly stdin?: Readable
  /** Sends KILL; the promise still resolves with the end that follows. */
  readonly signal?: AbortSignal
}

const killedDeadlineMs = 20_000

export async function openExec(
  target: ExecTarget,
  start: ExecStartInput,
  io: ExecIo = {},
): Promise<ExecEnd> {
  io.signal?.throwIfAborted()
  const { socket, head } = await upgrade(target)
  socket.on('error', () => undefined)
  const over = new AbortController()
  try {
    if (head.length > 0) socket.unshift(head)
    const withStdin = start.stdin ?? io.stdin !== undefined
    socket.write(encodeJsonFrame(frameType.start, { ...start, stdin: withStdin, stdinAcks: true }))
    const window = withStdin ? sendStdin(socket, io.stdin, over.signal) : undefined
    armKill(socket, io.signal, over.signal)
    return await follow(socket, io, (taken) => window?.(taken))
  } finally {
    over.abort()
    socket.destroy()
  }
}

function upgrade(target: ExecTarget): Promise<{ socket: Duplex; head: Buffer }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ socket: Duplex; head: Buffer }>()
  const headers = { ...target.headers, Connection: 'Upgrade', Upgrade: execProtocol }
  const asked = { method: 'POST', path: target.path, headers }
  const outgoing =
    target.daemon === undefined
      ? request({
          ...asked,
          agent: false,
          ...(target.socketPath === undefined ? {} : { socketPath: target.socketPath }),
          ...(target.host === undefined ? {} : { host: target.host }),
          ...(target.port === undefined ? {} : { port: target.port }),
        })
      : requestOf(target.daemon, asked)
  outgoing.on('upgrade', (_, socket, head) => resolve({ socket, head }))
  outgoing.on('response', (response) => {
    refusal(response).then(reject, reject)
  })
  outgoing.on('error', (cause) => {
    const where =
      target.daemon === undefined
        ? (target.socketPath ?? `${target.host}:${target.port}`)
        : targetName(target.daemon)
    reject(
      new RemoteError(
        'daemon_unreachable',
        'infra',
        `No daemon answers at ${where}: ${cause.message}. Start one with \`closedbook up\`.`,
        { cause },
      ),
    )
  })
  outgoing.end()
  return promise
}

async function refusal(response: IncomingMessage): Promise<RemoteError> {
  const status = response.statusCode ?? 0
  const chunks: Buffer[] = []
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk)
  const text = Buffer.concat(chunks).toString('utf8')
  try {
    const { code, blame, message } = wireErrorSchema.parse(JSON.parse(text))
    return new RemoteError(code, blame as Blame, message, { facts: { status } })
  } catch {
    const message = `The other side refused the exec with status ${status}: ${text.slice(0, 200)}`
    return new RemoteError('bad_answer', 'infra', message, { facts: { status } })
  }
}

function armKill(socket: Duplex, signal: AbortSignal | undefined, over: AbortSignal): void {
  const kill = (): void => {
    socket.write(encodeFrame(frameType.kill))
    const timer = setTimeout(() => socket.destroy(), killedDeadlineMs)
    over.addEventListener('abort', () => clearTimeout(timer))
  }
  if (signal?.aborted === true) kill()
  else signal?.addEventListener('abort', kill, { once: true, signal: over })
}

/** Returns what takes the acknowledgements. */
function sendStdin(
  socket: Duplex,
  stdin: Readable | undefined,
  over: AbortSignal,
): (takenBytes: number) => void {
  if (stdin === undefined) {
    socket.write(encodeFrame(frameType.stdinEnd))
    return () => undefined
  }
  let sent = 0
  let taken = 0
  const onData = (chunk: Buffer | string): void => {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
    for (let at = 0; at < bytes.length; at += stdinWindowBytes)
      socket.write(encodeFrame(frameType.stdin, bytes.subarray(at, at + stdinWindowBytes)))
    sent += bytes.length
    if (sent - taken >= stdinWindowBytes) stdin.pause()
  }
  const onEnd = (): void => {
    socket.write(encodeFrame(frameType.stdinEnd))
  }
  stdin.on('data', onData).once('end', onEnd).once('error', onEnd)
  over.addEventListener('abort', () => {
    stdin.off('data', onData).off('end', onEnd).off('error', onEnd).pause()
  })
  return (takenBytes) => {
    taken = takenBytes
    if (sent - taken < stdinWindowBytes && !over.aborted) stdin.resume()
  }
}

async function follow(
  socket: Duplex,
  io: ExecIo,
  onTaken: (takenBytes: number) => void,
): Promise<ExecEnd> {
  const frames = new FrameReader()
  let received = 0
  try {
    for await (const chunk of socket as AsyncIterable<Buffer>)
      for (const { type, payload } of frames.push(chunk)) {
        if (type === frameType.stdout || type === frameType.stderr) {
          const { offset, bytes } = decodeOutput(payload)
          received += bytes.length
          await (type === frameType.stdout ? io.onStdout : io.onStderr)?.(offset, bytes)
        } else if (type === frameType.started)
          io.onStarted?.((json(payload) as { exec: string }).exec)
        else if (type === frameType.stdinAck) onTaken(Number(payload.readBigUInt64BE(0)))
        else if (type === frameType.exit) return execEndSchema.parse(json(payload))
        else if (type === frameType.error) {
          const { code, blame, message } = wireErrorSchema.parse(json(payload))
          throw new RemoteError(code, blame as Blame, message)
        }
      }
  } catch (thrown) {
    if (!isSocketFault(thrown)) throw thrown
    throw lost(received, thrown)
  }
  throw lost(received)
}

function lost(received: number, cause?: unknown): RemoteError {
  return new RemoteError(
    'connection_lost',
    'infra',
    `The connection was lost before the command's end; ${received} bytes of output had arrived.`,
    { cause },
  )
}

function isSocketFault(thrown: unknown): boolean {
  const code = thrown instanceof Error ? (thrown as { code?: unknown }).code : undefined
  return typeof code === 'string' && /^E[A-Z]+$|^ERR_STREAM/.test(code)
}

function json(payload: Buffer): unknown {
  return JSON.parse(payload.toString('utf8'))
}
