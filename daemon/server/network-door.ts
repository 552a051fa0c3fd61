/**
 * The listener for browsers and other hosts. On loopback it needs no more than the tokens that every request is asked
 * for; beyond loopback it isn't opened without TLS and at least one token. Connections are capped, together and by
 * address, and what is beyond is closed before a byte is read.
 */
import https from 'node:https'
import type http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import type { DaemonConfig } from '../config.ts'
import { HostError } from '../errors.ts'
import type { Logger } from '../logger.ts'
import type { Door } from './auth/access.ts'
import { hostName } from './auth/origin.ts'
import type { Refusals } from './auth/refusals.ts'
import type { Tokens } from './auth/tokens.ts'
import type { Router } from './router.ts'
import { readTls, watchTls } from './tls.ts'

type ServerConfig = DaemonConfig['server']

export const defaultPort = 8480

export interface NetworkDoor extends AsyncDisposable {
  /** Of the dashboard, without a slash at its end. */
  readonly url: string
}

export interface DoorDeps {
  readonly tokens: Pick<Tokens, 'size'>
  readonly refusals: Refusals
  readonly log: Logger
}

interface Address {
  readonly host: string
  readonly port: number
}

/** null: none is wanted. Throws config_invalid or port_busy. */
export async function openNetworkDoor(
  router: Router,
  config: ServerConfig,
  deps: DoorDeps,
): Promise<NetworkDoor | null> {
  if (config.listen === 'none') return null
  const wanted =
    config.listen === 'auto' ? { host: '127.0.0.1', port: defaultPort } : addressOf(config.listen)
  requireSafe(wanted, config, deps)
  await using undo = new AsyncDisposableStack()
  const names = namesOf(wanted.host, config)
  const door: Door = {
    kind: 'network',
    secure: config.tls !== undefined,
    names,
    origins: new Set(config.origins),
  }
  const server = router.createServer(
    door,
    config.tls === undefined ? undefined : await readTls(config.tls),
  )
  const sockets = capConnections(server, config, deps)
  undo.defer(() => closeDoor(server, sockets))
  try {
    await listenOn(server, wanted).catch(async (error: NodeJS.ErrnoException) => {
      if (config.listen !== 'auto' || error.code !== 'EADDRINUSE') throw error
      await listenOn(server, { ...wanted, port: 0 })
    })
  } catch (error) {
    if (config.listen !== 'auto')
      throw new HostError(
        'port_busy',
        'operator',
        `cannot listen on ${config.listen}: ${(error as Error).message}; set server.listen to a free address, or to none`,
        { cause: error },
      )
    // nobody asked for it, and the socket serves all the same
    deps.log.warn({ err: error }, 'server.not-listening')
    return null
  }
  if (config.tls !== undefined && server instanceof https.Server)
    undo.use(watchTls(server, config.tls, deps.log))
  const { port } = server.address() as net.AddressInfo
  const url = `${door.secure ? 'https' : 'http'}://${shownHost(wanted.host, config)}:${port}`
  deps.log.info({ url }, 'server.listening')
  const owned = undo.move()
  return { url, [Symbol.asyncDispose]: () => owned.disposeAsync() }
}

function addressOf(listen: string): Address {
  const at = listen.lastIndexOf(':')
  const port = Number(listen.slice(at + 1))
  if (port > 65_535) throw unsafe(`server.listen: ${port} is no port`)
  return { host: listen.slice(0, at).replace(/^\[|\]$/g, ''), port }
}

const isLoopback = (host: string): boolean =>
  host === 'localhost' || host === '::1' || (net.isIPv4(host) && host.startsWith('127.'))

function requireSafe({ host }: Address, config: ServerConfig, { tokens }: DoorDeps): void {
  if (isLoopback(host)) return
  if (config.tls === undefined)
    throw unsafe(
      `server.listen is ${config.listen}, which other hosts can reach, and there is no TLS; set server.tls.cert and server.tls.key, or listen on 127.0.0.1`,
    )
  if (tokens.size === 0)
    throw unsafe(
      `server.listen is ${config.listen}, which other hosts can reach, and there is no token; start the daemon once without it, make one with \`closedbook token create --role view\`, then start it with it`,
    )
}

const unsafe = (message: string): HostError => new HostError('config_invalid', 'operator', message)

const bracketed = (host: string): string => (net.isIPv6(host) ? `[${host}]` : host)
const isAny = (host: string): boolean => host === '0.0.0.0' || host === '::'

function namesOf(host: string, config: ServerConfig): Set<string> {
  const own = isAny(host) ? [os.hostname()] : [bracketed(host)]
  const loopback = isLoopback(host) || isAny(host) ? ['localhost', '127.0.0.1', '[::1]'] : []
  const behind = config.origins.map((origin) => hostName(origin.replace(/^https?:\/\//, '')) ?? '')
  return new Set(
    [...own, ...loopback, ...config.names, ...behind].map((name) => name.toLowerCase()),
  )
}

function shownHost(host: string, { names }: ServerConfig): string {
  if (isLoopback(host)) return bracketed(host)
  return names[0] ?? (isAny(host) ? os.hostname() : bracketed(host))
}

function capConnections(
  server: http.Server,
  { maxConnections, maxConnectionsPerAddress }: ServerConfig,
  { refusals }: DoorDeps,
): Set<net.Socket> {
  const sockets = new Set<net.Socket>()
  const byAddress = new Map<string, number>()
  const refuse = (address: string): void =>
    refusals.note({ code: 'too_many_connections', address, method: '', path: '' })
  server.maxConnections = maxConnections
  server.on('drop', (data) => refuse(data?.remoteAddress ?? 'unknown'))
  server.on('connection', (socket: net.Socket) => {
    const address = socket.remoteAddress ?? 'gone'
    const open = byAddress.get(address) ?? 0
    if (open >= maxConnectionsPerAddress) {
      refuse(address)
      socket.destroy()
      return
    }
    byAddress.set(address, open + 1)
    sockets.add(socket)
    socket.once('close', () => {
      sockets.delete(socket)
      const left = (byAddress.get(address) ?? 1) - 1
      if (left === 0) byAddress.delete(address)
      else byAddress.set(address, left)
    })
  })
  return sockets
}

async function closeDoor(server: http.Server, sockets: ReadonlySet<net.Socket>): Promise<void> {
  if (!server.listening) return
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  for (const socket of sockets) socket.destroy()
  await closed
}

async function listenOn(server: http.Server, { host, port }: Address): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}
