/** A listener as the daemon opens it, with one route for each role; and raw requests to it, every header as given. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { daemonConfigSchema, type DaemonConfig } from '../../../daemon/config.ts'
import { createLogger } from '../../../daemon/logger.ts'
import { roles, type Role } from '../../../daemon/protocol/auth.ts'
import { addAuthRoutes } from '../../../daemon/server/auth/auth-routes.ts'
import { Gate } from '../../../daemon/server/auth/gate.ts'
import { Tokens } from '../../../daemon/server/auth/tokens.ts'
import { openNetworkDoor } from '../../../daemon/server/network-door.ts'
import { Router, readText, sendJson } from '../../../daemon/server/router.ts'

export const silent = createLogger({ level: 'silent' })

export async function scratch(): Promise<{ directory: string; remove: () => Promise<void> }> {
  const directory = await mkdtemp(path.join(os.tmpdir(), 'cbt-'))
  return { directory, remove: () => rm(directory, { recursive: true, force: true }) }
}

type ServerConfig = DaemonConfig['server']
export const serverConfig = (server: object): ServerConfig =>
  daemonConfigSchema.parse({ stateDir: '/nowhere', server }).server

/** A listener with the gate, one route for each role, and a socket that says who it is. */
export async function listener(
  directory: string,
  server: object = {},
  addMore: (router: Router) => void = () => {},
) {
  const undo = new AsyncDisposableStack()
  const tokens = undo.use(await Tokens.open(await mkdtemp(path.join(directory, 'auth-'))))
  const gate = undo.use(new Gate(tokens, silent))
  const router = new Router(silent, gate)
  const ended: string[] = []
  for (const role of [...roles, 'anyone'] as const)
    for (const method of ['GET', 'POST'])
      router.on(method, `/v1/${role}`, { role, summary: role }, async (call) => {
        if (method === 'POST') await readText(call, 1000)
        sendJson(call.response, 200, { role: call.access.role })
      })
  router.on('GET', '/v1/stream', { role: 'view', summary: 'until it is cut' }, ({ response }) => {
    response.writeHead(200).write('open')
  })
  router.onUpgrade(
    '/v1/socket',
    { role: 'view', summary: 'says who it is' },
    (request, socket, _head, _params, access) => {
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n${access.role}`,
      )
      access.over.addEventListener('abort', () => {
        ended.push(request.url ?? '')
        socket.end('over')
      })
    },
  )
  const config = serverConfig({ listen: '127.0.0.1:0', ...server })
  addMore(router)
  addAuthRoutes(router, gate, { secure: config.tls !== undefined })
  const door = await openNetworkDoor(router, config, {
    tokens,
    refusals: gate.refusals,
    log: silent,
  })
  if (door === null) throw new Error('no door')
  undo.use(door)
  const url = new URL(door.url)
  const make = (role: Role, expiresInMs: number | null = null) =>
    tokens.create({ kind: 'token', role, name: role, expiresInMs })
  return { gate, tokens, door, url, make, ended, [Symbol.asyncDispose]: () => undo.disposeAsync() }
}

export interface Answer {
  readonly status: number
  readonly text: string
  readonly headers: http.IncomingHttpHeaders
}

/** Every header as given: fetch would not send some of them. */
export async function ask(
  url: URL,
  at: string,
  headers: Record<string, string> = {},
  { method = 'GET', body = '' } = {},
): Promise<Answer> {
  const request = http.request({
    host: url.hostname,
    port: url.port,
    path: at,
    method,
    headers,
    agent: false,
  })
  request.end(body)
  const [response] = (await once(request, 'response')) as [http.IncomingMessage]
  const chunks: Buffer[] = []
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk)
  return {
    status: response.statusCode ?? 0,
    text: Buffer.concat(chunks).toString(),
    headers: response.headers,
  }
}

/** All that an upgrade is answered, until its end. */
export async function upgrade(
  url: URL,
  at: string,
  headers: Record<string, string>,
): Promise<string> {
  const socket = net.connect(Number(url.port), url.hostname)
  const lines = Object.entries({
    Host: url.host,
    Connection: 'Upgrade',
    Upgrade: 'x',
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.write(`GET ${at} HTTP/1.1\r\n${lines.join('')}\r\n`)
  let text = ''
  socket.on('data', (chunk: Buffer) => (text += chunk.toString()))
  socket.on('error', () => {})
  await Promise.race([once(socket, 'close'), until(() => /\r\n\r\n(view|run|admin|\{)/.test(text))])
  socket.destroy()
  return text
}

export async function until(condition: () => boolean): Promise<void> {
  for (const deadline = Date.now() + 10_000; !condition(); await delay(5))
    if (Date.now() > deadline) throw new Error('it did not come to be within 10 s')
}

export const bearer = (token: string): Record<string, string> => ({
  authorization: `Bearer ${token}`,
})
