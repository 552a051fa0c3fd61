/**
 * CONNECT. Two looks at each tunnel: at the line, and at the ClientHello that comes first in it. Between them the way
 * out is opened, so that the answer to the CONNECT can be true, but not a byte passes before the second look. One
 * decision is recorded, when all is known. A tunnel to port 80 is not a tunnel: its requests are weighed one by one.
 */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { decide } from '../../policy/decide.ts'
import { parseAuthority } from '../../policy/host.ts'
import { printable } from '../../policy/printable.ts'
import {
  admit,
  record,
  recordClose,
  whileOpen,
  type Attempt,
  type EgressContext,
} from './context.ts'
import { Downflow } from './downflow.ts'
import { readHello } from './read-hello.ts'
import { refuseSocket, refuseTls } from './refuse.ts'
import { headFault, hostHeaders } from './request-head.ts'
import { tunnel } from './tunnel.ts'

const established = 'HTTP/1.1 200 Connection Established\r\n\r\n'

export interface ConnectHooks {
  /** Takes over a socket whose plain requests must all be for `host`. */
  readonly adoptPlain: (socket: Socket, head: Buffer, host: string) => void
}

export async function serveConnect(
  context: EgressContext,
  request: IncomingMessage,
  socket: Socket,
  head: Buffer,
  hooks: ConnectHooks,
): Promise<void> {
  const { policy, audit } = context
  const target = parseAuthority(request.url ?? '')
  const attempt: Attempt = {
    protocol: 'connect',
    host: target.ok ? target.host : printable(request.url ?? '', 512),
    port: target.ok ? target.port : null,
    connection: audit.nextConnection(),
  }
  const header = hostHeaders(request)[0]
  const first = decide(policy, {
    kind: 'connect',
    target,
    hostHeader:
      header === undefined ? null : parseAuthority(header, target.ok ? target.port : undefined),
    fault: headFault(request, { hostRequired: false }),
  })
  if (first.action === 'deny' || !target.ok) {
    record(context, attempt, first)
    if (await context.pace.turn()) refuseSocket(socket, first.reason)
    else socket.destroy()
    return
  }
  const { host, port } = target
  const pass = admit(context)
  if ('action' in pass) {
    record(context, attempt, pass)
    refuseSocket(socket, pass.reason)
    return
  }
  using _pass = pass
  if (port === 80) {
    record(context, attempt, first, 'plain HTTP inside')
    await audit.flush()
    socket.write(established)
    hooks.adoptPlain(socket, head, host)
    return
  }

  using client = whileOpen(context, socket)
  const downflow = new Downflow()
  const { signal } = client
  const opened = await context.route.open(host, port, { signal, onread: downflow.onread })
  if (!opened.ok) {
    record(context, attempt, opened, opened.detail)
    refuseSocket(socket, opened.reason)
    return
  }
  const upstream = opened.socket
  try {
    socket.write(established)
    const { hello, bytes } = await readHello(socket, head, context.limits)
    const second = decide(policy, { kind: 'hello', host, hello })
    if (second.action === 'deny') {
      record(context, attempt, second, helloDetail(hello, bytes))
      refuseTls(socket)
      return
    }
    record(context, attempt, second, `dialed ${opened.address}`)
    await audit.flush()
    recordClose(
      context,
      attempt,
      await tunnel(socket, upstream, bytes, {
        limits: context.limits,
        meter: context.meter,
        signal: context.signal,
        downflow,
      }),
    )
  } finally {
    upstream.destroy()
  }
}

/** Says what was there in place of the right ClientHello. */
export function helloDetail(
  hello: Awaited<ReturnType<typeof readHello>>['hello'],
  bytes: Buffer,
): string {
  if (hello.kind === 'hello') {
    return hello.serverName === null ? 'no server name' : `server name ${hello.serverName}`
  }
  const shown = bytes.length === 0 ? 'no bytes' : `first bytes ${bytes.toString('hex', 0, 64)}`
  return `${hello.kind}: ${shown}`
}
