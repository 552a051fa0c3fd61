/**
 * TLS that was sent to an address rather than to the proxy. The address is not believed, only recorded: the name in
 * the ClientHello decides, and the way out is looked up afresh by us.
 */
import type { Socket } from 'node:net'
import { decide } from '../../policy/decide.ts'
import { parseHost } from '../../policy/host.ts'
import { printable } from '../../policy/printable.ts'
import { helloDetail } from './connect.ts'
import {
  admit,
  destination,
  record,
  recordClose,
  whileOpen,
  type Attempt,
  type EgressContext,
} from './context.ts'
import { Downflow } from './downflow.ts'
import { readHello } from './read-hello.ts'
import { refuseTls } from './refuse.ts'
import { tunnel } from './tunnel.ts'

const port = 443

export async function serveTransparentTls(context: EgressContext, socket: Socket): Promise<void> {
  const { policy, audit } = context
  const address = destination(socket)
  const { hello, bytes } = await readHello(socket, Buffer.alloc(0), context.limits)
  const text = hello.kind === 'hello' ? hello.serverName : null
  const name = text === null ? null : parseHost(text)
  const attempt: Attempt = {
    protocol: 'tls',
    host: name?.ok === true ? name.host : text === null ? null : printable(text, 512),
    address,
    port,
    connection: audit.nextConnection(),
  }
  const decision = decide(policy, { kind: 'tls', name, port, hello })
  if (decision.action === 'deny' || name?.ok !== true) {
    record(context, attempt, decision, helloDetail(hello, bytes))
    refuseTls(socket)
    return
  }
  const pass = admit(context)
  if ('action' in pass) {
    record(context, attempt, pass)
    refuseTls(socket)
    return
  }
  using _pass = pass
  using client = whileOpen(context, socket)
  const downflow = new Downflow()
  const { signal } = client
  const opened = await context.route.open(name.host, port, { signal, onread: downflow.onread })
  if (!opened.ok) {
    record(context, attempt, opened, opened.detail)
    refuseTls(socket)
    return
  }
  try {
    record(context, attempt, decision, `dialed ${opened.address}`)
    await audit.flush()
    recordClose(
      context,
      attempt,
      await tunnel(socket, opened.socket, bytes, {
        limits: context.limits,
        meter: context.meter,
        signal: context.signal,
        downflow,
      }),
    )
  } finally {
    opened.socket.destroy()
  }
}
