/**
 * Starts an exec over a connection of our own, for terminals: their output comes in pieces of a few kilobytes, and the
 * driver's stream would take 64 KiB of fresh memory for each. Here every piece is read into one buffer, which whoever
 * takes it must be done with, or have copied, when it returns. Everything else about an exec is the driver's.
 */
import { once } from 'node:events'
import net from 'node:net'
import { EngineError } from '../errors.ts'

const bufferBytes = 64 * 1024
const headLimitBytes = 16 * 1024
const headDeadlineMs = 30_000

/** Resolves with a paused socket when the engine has switched to raw bytes. What came along is taken at once. */
export async function hijackExec(
  socketPath: string,
  execId: string,
  take: (bytes: Buffer) => void,
): Promise<net.Socket> {
  const started = Promise.withResolvers<void>()
  let head: Buffer | null = Buffer.alloc(0)
  const read = (bytes: Buffer): void => {
    if (head === null) return take(bytes)
    head = Buffer.concat([head, bytes])
    const end = head.indexOf('\r\n\r\n')
    if (end < 0) {
      if (head.length > headLimitBytes) started.reject(new Error('its answer has no end'))
      return
    }
    const answer = head.toString('latin1', 0, end)
    const rest = head.subarray(end + 4)
    if (!/^HTTP\/1\.1 (?:101|200)/.test(answer))
      return started.reject(new Error(`${answer.split('\r\n')[0]} ${rest.toString().trim()}`))
    head = null
    socket.pause()
    started.resolve()
    if (rest.length > 0) take(rest)
  }
  const socket = net.connect({
    path: socketPath,
    onread: {
      buffer: Buffer.allocUnsafeSlow(bufferBytes),
      callback: (length, buffer) => {
        read(Buffer.from(buffer.buffer, buffer.byteOffset, length))
        return true
      },
    },
  })
  socket.on('error', (error) => started.reject(error))
  socket.once('close', () => started.reject(new Error('the connection was closed')))
  const late = setTimeout(() => started.reject(new Error('no answer came')), headDeadlineMs)
  const body = JSON.stringify({ Detach: false, Tty: true })
  try {
    await Promise.race([once(socket, 'connect'), started.promise])
    socket.write(
      `POST /exec/${execId}/start HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    )
    await started.promise
    return socket
  } catch (cause) {
    socket.destroy()
    throw new EngineError(
      'engine_refused',
      'infra',
      `The engine at ${socketPath} could not start the program on a terminal: ${(cause as Error).message}.`,
      { cause },
    )
  } finally {
    clearTimeout(late)
  }
}
