/** An exec gateway on loopback that answers from a script: what the shim sees of the daemon, and what the daemon sees of it. */
import http from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import {
  encodeFrame,
  encodeJsonFrame,
  execProtocol,
  execStartSchema,
  FrameReader,
  frameType,
  outputHeader,
} from '../../daemon/protocol/exec-frames.ts'
import type { ExecEnd, ExecStart } from '../../daemon/protocol/exec-frames.ts'

export interface Session {
  readonly start: ExecStart
  readonly socket: Duplex
  /** What came as STDIN so far; `ended` resolves at STDIN_END. */
  readonly stdin: Buffer[]
  readonly stdinEnded: Promise<void>
  readonly closed: Promise<void>
  output(bytes: Uint8Array, offset?: number): void
  exit(end: Partial<ExecEnd>): void
  error(message: string): void
}

export interface FakeGateway extends AsyncDisposable {
  readonly address: string
  /** Every byte that a client sent, upgrade or not. */
  readonly received: Buffer[]
  readonly calls: { readonly path: string; readonly body: unknown }[]
}

export async function fakeExecGateway(script: {
  exec?: (session: Session) => void
  /** An answer instead of the upgrade. */
  refuse?: { status: number; body: object }
  run?: { status: number; body: object }
}): Promise<FakeGateway> {
  const received: Buffer[] = []
  const calls: { path: string; body: unknown }[] = []
  const server = http.createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      received.push(Buffer.from(JSON.stringify(request.headers)), ...chunks)
      calls.push({ path: request.url ?? '', body: JSON.parse(Buffer.concat(chunks).toString()) })
      const answer =
        request.url === '/v1/run'
          ? (script.run ?? { status: 200, body: { id: 'box-1' } })
          : { status: 200, body: {} }
      response.writeHead(answer.status, { 'content-type': 'application/json' })
      response.end(JSON.stringify(answer.body))
    })
  })
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('data', (chunk: Buffer) => received.push(chunk))
  })
  server.on('upgrade', (request, socket: Duplex, head: Buffer) => {
    socket.on('error', () => {})
    if (request.url !== '/v1/exec' || request.headers.upgrade !== execProtocol)
      return socket.destroy()
    if (script.refuse !== undefined) {
      const text = JSON.stringify(script.refuse.body)
      socket.end(
        `HTTP/1.1 ${script.refuse.status} No\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
      )
      return undefined
    }
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${execProtocol}\r\n\r\n`,
    )
    return serve(socket, head, script.exec ?? ((session) => session.exit({ exit: { code: 0 } })))
  })
  server.listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    calls,
    async [Symbol.asyncDispose]() {
      // The server has let go of upgraded ones.
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function serve(socket: Duplex, head: Buffer, script: (session: Session) => void): void {
  const reader = new FrameReader()
  const stdin: Buffer[] = []
  const stdinEnd = Promise.withResolvers<void>()
  // Sockets of an HTTP server stay half open: a client that died by itself is an end, not a close.
  const closed = new Promise<void>((resolve) => {
    for (const event of ['end', 'close']) socket.once(event, () => resolve())
  })
  let sent = 0
  let taken = 0
  const take = (chunk: Buffer): void => {
    for (const { type, payload } of reader.push(chunk)) {
      if (type === frameType.stdin) {
        stdin.push(payload)
        taken += payload.length
        const acknowledgement = Buffer.alloc(8)
        acknowledgement.writeBigUInt64BE(BigInt(taken))
        socket.write(encodeFrame(frameType.stdinAck, acknowledgement))
      }
      if (type === frameType.stdinEnd) stdinEnd.resolve()
      if (type !== frameType.start) continue
      socket.write(encodeJsonFrame(frameType.started, { exec: 'e1' }))
      script({
        start: execStartSchema.parse(JSON.parse(payload.toString())),
        socket,
        stdin,
        stdinEnded: stdinEnd.promise,
        closed,
        output(bytes, offset = sent) {
          sent = offset + bytes.length
          socket.write(outputHeader(frameType.stdout, offset, bytes.length))
          socket.write(bytes)
        },
        exit(end) {
          const none = { totalBytes: 0, droppedBytes: 0 }
          const whole: ExecEnd = {
            exec: 'e1',
            exit: { code: 0 },
            cause: 'exited',
            stdout: none,
            stderr: none,
            childrenLeft: false,
            durationMs: 1,
            ...end,
          }
          socket.end(encodeJsonFrame(frameType.exit, whole))
        },
        error(message) {
          const error = { code: 'engine_refused', message, blame: 'infra' }
          socket.end(encodeJsonFrame(frameType.error, error))
        },
      })
    }
  }
  socket.on('data', take)
  if (head.length > 0) take(head)
}
