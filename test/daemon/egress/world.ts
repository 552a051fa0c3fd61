/**
 * A lease's egress on loopback: listeners on free ports, an origin for TLS and one for plain HTTP that keep what
 * reached them, a resolver that keeps what it was asked, and an audit log in a folder of the test's own.
 */
import { execFile } from 'node:child_process'
import { createSocket, type Socket as UdpSocket } from 'node:dgram'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer as createHttpServer, type IncomingMessage } from 'node:http'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer as createTlsServer } from 'node:tls'
import { promisify } from 'node:util'
import { AuditLog } from '../../../daemon/egress/audit-log.ts'
import { dialTcp } from '../../../daemon/egress/dial.ts'
import { serveEgress, type Egress, type EgressOptions } from '../../../daemon/egress/egress.ts'
import { readAudit } from '../../../daemon/egress/read-audit.ts'
import { auditEventSchema, type AuditEvent } from '../../../policy/audit-event.ts'
import { policySchema } from '../../../policy/policy.ts'

export const allowedHost = 'origin.example'
export const publicAddress = '198.51.100.7'
/** Not the address of the other listeners, so that one can see which one is recorded. */
export const tripwireAddress = '127.0.0.3'

export const listenOn = async (server: Server, host = '127.0.0.1'): Promise<number> => {
  server.listen(0, host)
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

export const certificate = async (folder: string): Promise<{ key: Buffer; cert: Buffer }> => {
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
  const subject = ['-subj', `/CN=${allowedHost}`, '-addext', `subjectAltName=DNS:${allowedHost}`]
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  const run = promisify(execFile)
  await run('openssl', [
    'req',
    '-x509',
    '-days',
    '2',
    ...curve,
    '-keyout',
    key,
    '-out',
    cert,
    ...subject,
  ])
  return { key: await readFile(key), cert: await readFile(cert) }
}

export class World implements AsyncDisposable {
  readonly ports = { proxy: 0, tls: 0, http: 0, dnsTcp: 0, dnsUdp: 0, tripwire: 0 }
  readonly origins = { tls: 0, http: 0 }
  readonly requests: { method: string; url: string; rawHeaders: string[]; body: string }[] = []
  readonly resolved: string[] = []
  readonly dialed: string[] = []
  readonly faults: unknown[] = []
  /** Connections that any origin has accepted. */
  accepted = 0
  addresses: readonly string[] = [publicAddress]
  cert: Buffer = Buffer.alloc(0)
  #undo = new AsyncDisposableStack()
  readonly folder: string
  #audit: AuditLog | undefined
  #egress: Egress | undefined

  private constructor(folder: string) {
    this.folder = folder
  }

  static async open(options: Partial<EgressOptions> = {}): Promise<World> {
    await using undo = new AsyncDisposableStack()
    const folder = await mkdtemp(join(tmpdir(), 'egress-'))
    undo.defer(() => rm(folder, { recursive: true, force: true }))
    const world = new World(folder)
    const servers: Server[] = []
    const open = async (host?: string): Promise<Server> => {
      const server = createServer()
      await listenOn(server, host)
      servers.push(server)
      return server
    }
    const udp: UdpSocket = createSocket('udp4')
    udp.bind(0, '127.0.0.1')
    await once(udp, 'listening')
    undo.defer(() => void udp.close())
    undo.defer(() => servers.forEach((server) => server.close()))
    await world.#startOrigins(servers)
    const [proxy, tls, http, dnsTcp, tripwire] = await Promise.all([
      open(),
      open(),
      open(),
      open(),
      open(tripwireAddress),
    ])
    const audit = await AuditLog.open(world.file, { lease: 'lease0000001', trial: 'a trial' })
    undo.use(audit)
    const egress = serveEgress(
      { proxy, tls, http, dnsTcp, dnsUdp: udp, tripwire },
      {
        policy: policySchema.parse({
          version: 1,
          connect: {
            allow: [allowedHost, '*.sub.example'],
            deny: ['bad.sub.example'],
            ports: [80, 443],
          },
        }),
        audit,
        resolve: async (host) => {
          world.resolved.push(host)
          return world.addresses
        },
        vet: (address) => address === publicAddress,
        dial: (target, dialOptions) => {
          world.dialed.push(`${target.address}:${target.port}`)
          const port = target.port === 443 ? world.origins.tls : world.origins.http
          return dialTcp({ ...target, address: '127.0.0.1', port }, dialOptions)
        },
        onFault: (error) => world.faults.push(error),
        ...options,
      },
    )
    undo.use(egress)
    world.#audit = audit
    world.#egress = egress
    const port = (server: { address(): unknown }): number => (server.address() as AddressInfo).port
    Object.assign(world.ports, {
      proxy: port(proxy),
      tls: port(tls),
      http: port(http),
      dnsTcp: port(dnsTcp),
      dnsUdp: port(udp),
      tripwire: port(tripwire),
    })
    world.#undo = undo.move()
    return world
  }

  get file(): string {
    return join(this.folder, 'audit.jsonl')
  }

  get audit(): AuditLog {
    if (this.#audit === undefined) throw new Error('not open')
    return this.#audit
  }

  get egress(): Egress {
    if (this.#egress === undefined) throw new Error('not open')
    return this.#egress
  }

  async #startOrigins(servers: Server[]): Promise<void> {
    const { key, cert } = await certificate(this.folder)
    this.cert = cert
    const onRequest = async (request: IncomingMessage): Promise<string> => {
      let body = ''
      for await (const chunk of request) body += String(chunk)
      const { method = '', url = '', rawHeaders } = request
      this.requests.push({ method, url, rawHeaders, body })
      return `${method} ${url} ${body.length}`
    }
    const plain = createHttpServer((request, response) => {
      const answer = (text: string): void => {
        if (request.url === '/redirect') {
          response.writeHead(302, { Location: 'http://evil.example/x', Connection: 'close' }).end()
          return
        }
        response.writeHead(200, ['X-Twice', 'one', 'X-Twice', 'two', 'Connection', 'close'])
        response.end(text)
      }
      onRequest(request).then(answer, () => response.destroy())
    })
    // Echoes; a client that sends "flood N" gets N bytes instead.
    const secure = createTlsServer({ key, cert }, (socket) => {
      socket.on('error', () => undefined)
      socket.on('data', (data: Buffer) => {
        const match = /^flood (\d+)/.exec(data.toString('latin1'))
        if (match === null) socket.write(data)
        else socket.end(Buffer.alloc(Number(match[1])))
      })
      socket.on('end', () => socket.end())
    })
    for (const server of [plain, secure]) {
      server.on('connection', () => (this.accepted += 1))
      servers.push(server)
    }
    this.origins.http = await listenOn(plain)
    this.origins.tls = await listenOn(secure)
  }

  /** All events so far, each of them valid; sequence numbers without a gap. */
  async events(): Promise<AuditEvent[]> {
    await this.audit.flush()
    const events: AuditEvent[] = []
    for await (const event of readAudit(this.file)) {
      auditEventSchema.parse(event)
      if (event.seq !== events.length + 1)
        throw new Error(`seq ${event.seq} after ${events.length}`)
      events.push(event)
    }
    return events
  }

  /** `action reason host` of the decisions, waiting until there are so many. */
  async decisions(count: number): Promise<string[]> {
    const found = await this.until((events) => {
      const decisions = events.filter(({ kind }) => kind === 'decision')
      return decisions.length >= count ? decisions : undefined
    })
    return found.map(({ action, reason, host }) => `${action} ${reason} ${host}`)
  }

  /** Waits for a condition on the audit log. */
  async until<T>(condition: (events: AuditEvent[]) => T | undefined): Promise<T> {
    const signal = AbortSignal.timeout(5_000)
    const collected: AuditEvent[] = []
    for await (const event of this.audit.events({ follow: true, signal })) {
      collected.push(event)
      const value = condition(collected)
      if (value !== undefined) return value
    }
    throw new Error('the log was closed')
  }

  /** Sends bytes as they are; resolves with all that came back when the connection is over. */
  async raw(port: number, ...parts: (string | Buffer)[]): Promise<string> {
    const host = port === this.ports.tripwire ? tripwireAddress : '127.0.0.1'
    const socket = connect({ port, host, noDelay: true })
    socket.on('error', () => undefined)
    let answer = ''
    socket.on('data', (chunk: Buffer) => (answer += chunk.toString('latin1')))
    for (const part of parts) {
      socket.write(part)
      await new Promise((turn) => setImmediate(turn))
    }
    await closed(socket)
    return answer
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync()
  }
}

/** Also when it closes because of an error, which `once` of node:events would throw. */
export function closed(socket: Socket): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  socket.on('error', () => undefined).once('close', () => resolve())
  if (socket.closed) resolve()
  return promise
}

/** Turns the event loop until it holds. */
export async function eventually(condition: () => boolean): Promise<void> {
  const deadline = AbortSignal.timeout(5_000)
  while (!condition()) {
    deadline.throwIfAborted()
    await new Promise((turn) => setImmediate(turn))
  }
}
