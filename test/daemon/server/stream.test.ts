/** Numbered streams over WebSocket: resumed by number, for those who may, one way, and no slow reader costs memory. */
import { once } from 'node:events'
import path from 'node:path'
import t from 'tap'
import { WebSocket } from 'ws'
import { ticketProtocolPrefix } from '../../../daemon/protocol/auth.ts'
import { DaemonClient } from '../../../daemon/protocol/client.ts'
import { streamProtocol, type StreamItem } from '../../../daemon/protocol/stream-frames.ts'
import { addBoardRoutes } from '../../../daemon/server/board/board-routes.ts'
import { Board } from '../../../daemon/server/board/board.ts'
import { openApi } from '../../../daemon/server/openapi.ts'
import {
  StreamSockets,
  type NumberedLine,
  type StreamSocketLimits,
} from '../../../daemon/server/numbered-stream.ts'
import { cuttingProxy } from '../../support/cutting-proxy.ts'
import { ask, bearer, listener, scratch, silent, until } from './listener.ts'

const { directory, remove } = await scratch()
t.teardown(remove)

const limits = { maxDocuments: 100, maxDocumentBytes: 200e6, maxBytes: 500e6 }
const at = '/v1/board/steps/job.trial.1/lines'
const lineOf = (n: number): string => JSON.stringify({ step: n })
const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1)

async function world(name: string, given: Partial<StreamSocketLimits> = {}) {
  const board = await Board.open(path.join(directory, name), limits, silent)
  const streams = new StreamSockets(given)
  let described: { readonly paths?: unknown } = {}
  const pulled = { lines: 0 }
  const server = await listener(directory, {}, (router) => {
    addBoardRoutes(router, board, streams)
    described = openApi(router)
    router.onUpgrade(
      '/v1/flood',
      { role: 'view', summary: 'more than anyone takes' },
      (request, socket, head, _params, access) =>
        streams.serve({ request, socket, head, access }, ({ from }) => flood(from, pulled)),
    )
  })
  let last = 0
  const append = async (count: number): Promise<void> => {
    const lines = upTo(count).map((n) => lineOf(last + n))
    last = await board.append('steps', 'job.trial.1', last + 1, lines)
  }
  return { ...server, board, streams, pulled, append, described }
}

const floodItems = 3_000
async function* flood(
  from: number,
  pulled: { lines: number },
): AsyncGenerator<readonly NumberedLine[]> {
  const line = JSON.stringify('x'.repeat(32 * 1024))
  for (let n = from; n <= floodItems; n += 1) {
    pulled.lines += 1
    yield [{ n, line }]
  }
}

interface Client {
  readonly socket: WebSocket
  readonly items: StreamItem[]
  readonly numbers: () => number[]
  readonly closed: Promise<[number, string]>
}

/** `closed`: the code of its end, or the status of a refusal. */
function connect(
  url: URL,
  to: string,
  headers: Record<string, string> = {},
  protocols: string[] = [streamProtocol],
): Client {
  const socket = new WebSocket(`ws://${url.host}${to}`, protocols, { headers })
  const items: StreamItem[] = []
  socket.on('error', () => {})
  socket.on('message', (data: Buffer) => items.push(JSON.parse(data.toString()) as StreamItem))
  const closed = new Promise<[number, string]>((resolve) => {
    socket.on('unexpected-response', (_request, response) => {
      response.resume()
      resolve([response.statusCode ?? 0, ''])
      socket.terminate()
    })
    socket.on('close', (code, reason) => resolve([code, reason.toString()]))
  })
  return { socket, items, numbers: () => items.map(({ n }) => n), closed }
}

void t.test('a stream goes on where its reader was, and ends where it is to end', async (t) => {
  await using server = await world('resumed')
  const { url, append } = server
  const headers = bearer((await server.make('view')).token)
  await append(50)
  const first = connect(url, at, headers)
  await until(() => first.items.length === 50)
  t.equal(first.socket.protocol, streamProtocol)
  t.same(first.items[6], { n: 7, data: { step: 7 } })
  await append(5)
  await until(() => first.items.length === 55)
  first.socket.terminate()
  await append(40)
  const second = connect(url, `${at}?from=56`, headers)
  await until(() => second.items.length === 40)
  t.same([...first.numbers(), ...second.numbers()], upTo(95), 'each once, in order')
  second.socket.close()
  const rest = connect(url, `${at}?from=90&follow=false`, headers)
  t.same(await rest.closed, [1000, 'ended'])
  t.same(rest.numbers(), [90, 91, 92, 93, 94, 95])
  const none = connect(url, `${at}?from=0`, headers)
  t.equal((await none.closed)[0], 400)
  const plain = await ask(url, `${at}?from=94`, headers)
  t.equal(plain.text, `${lineOf(94)}\n${lineOf(95)}\n`, 'JSON lines of the same numbers')
  t.match(
    server.described.paths,
    {
      '/v1/board/{kind}/{id}/lines': {
        get: {
          parameters: [{ name: 'kind' }, { name: 'id' }, { name: 'from' }, { name: 'follow' }],
          responses: { 101: { description: /closedbook\.stream\.v1/ }, 200: {} },
        },
      },
    },
    'one path, as it is asked for',
  )
  const bare = connect(url, `${at}?follow=false`, headers, [])
  t.equal((await bare.closed)[0], 1000, 'a client without subprotocols is served too')
  await until(() => server.streams.counts.open === 0)
})

void t.test('a client of ours comes back by itself, and takes its time', async (t) => {
  await using server = await world('client')
  const { url, append } = server
  const { token } = await server.make('view')
  // whatever stands between may cut what it has
  await using between = await cuttingProxy(Number(url.port))
  await using client = new DaemonClient({ url: `http://127.0.0.1:${between.port}`, token })
  await append(2_000)
  const over = new AbortController()
  const states: string[] = []
  const seen: number[] = []
  const following = (async () => {
    for await (const { n, data } of client.follow(at, {
      signal: over.signal,
      onState: (state) => states.push(state),
    })) {
      seen.push((data as { step: number }).step)
      if (n % 700 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
  })()
  await until(() => seen.length === 2_000)
  between.cut()
  await append(500)
  await until(() => seen.length === 2_500)
  over.abort()
  await following
  t.same(seen, upTo(2_500))
  t.same(states, ['connected', 'lost', 'connected'])
  await using stranger = new DaemonClient({ url: url.origin, token: `${token}x` })
  await t.rejects(stranger.follow(at).next(), { code: 'unauthenticated', message: /token create/ })
  const ended = t.rejects(client.follow(at, { from: 2_501 }).next(), {
    code: 'unauthenticated',
    message: /has ended/,
  })
  await until(() => server.streams.counts.open === 1)
  await server.tokens.revoke(token)
  await ended
})

void t.test('it is for those who may look on, and goes one way', async (t) => {
  await using server = await world('guarded')
  const { url, append } = server
  await append(1)
  const view = await server.make('view')
  const headers = bearer(view.token)
  const ticket = async (of = at): Promise<string> => {
    const body = JSON.stringify({ path: of, role: 'view' })
    const made = await ask(url, '/v1/tickets', headers, { method: 'POST', body })
    return `${ticketProtocolPrefix}${(JSON.parse(made.text) as { ticket: string }).ticket}`
  }
  const own = { origin: url.origin }
  const used = await ticket()
  const rows: readonly (readonly [
    why: string,
    headers: Record<string, string>,
    protocols: string[],
    end: number,
  ])[] = [
    ['a token', headers, [], 1000],
    ['a ticket of its own page', own, [used], 1000],
    ['the same again', own, [used], 401],
    ['one for another stream', own, [await ticket('/v1/board/steps/other/lines')], 401],
    ['nothing', {}, [], 401],
    ['a page of elsewhere', { origin: 'https://evil.example' }, [await ticket()], 403],
    ['a page of elsewhere with a token', { ...headers, origin: 'https://evil.example' }, [], 403],
    ['a rebound name', { ...headers, host: 'rebound.example' }, [], 403],
    ['a session alone', { ...own, cookie: `closedbook-${url.port}=${view.token}` }, [], 401],
  ]
  for (const [why, given, protocols, end] of rows) {
    const client = connect(url, `${at}?follow=false`, given, [streamProtocol, ...protocols])
    t.equal((await client.closed)[0], end, why)
    if (end === 1000) t.equal(client.socket.protocol, streamProtocol, 'a ticket is not echoed')
  }
  const talks = connect(url, at, headers)
  await until(() => talks.items.length === 1)
  talks.socket.send('{"n":1}')
  t.same(await talks.closed, [4000, 'this stream goes one way'])
  const shouts = connect(url, at, headers)
  await until(() => shouts.items.length === 1)
  shouts.socket.send(Buffer.alloc(1024 * 1024))
  t.equal((await shouts.closed)[0], 1009)
  const byTicket = connect(url, at, own, [streamProtocol, await ticket()])
  const byToken = connect(url, at, headers)
  await until(() => byTicket.items.length + byToken.items.length === 2)
  await server.tokens.revoke(view.token)
  const over = [4001, 'the credential has ended']
  t.same(await Promise.all([byToken.closed, byTicket.closed]), [over, over])
  await until(() => server.streams.counts.open === 0)
})

void t.test(
  'a slow reader waits for nobody but itself, and one that is stuck is cut',
  async (t) => {
    await using server = await world('slow', { stallMs: 400 })
    const { url, pulled, streams } = server
    const headers = bearer((await server.make('view')).token)
    const stuck = connect(url, '/v1/flood', headers)
    await once(stuck.socket, 'open')
    stuck.socket.pause()
    await until(() => streams.counts.stalled === 1)
    t.ok(pulled.lines < floodItems / 2, `${pulled.lines} of ${floodItems} were read for it`)
    stuck.socket.resume()
    await stuck.closed
    const seen = stuck.items.length
    t.ok(seen > 0 && seen < floodItems)
    const again = connect(url, `/v1/flood?from=${seen + 1}`, headers)
    t.equal((await again.closed)[0], 1000)
    t.same([...stuck.numbers(), ...again.numbers()], upTo(floodItems), 'and nothing was lost by it')
    t.equal(streams.counts.stalled, 1, 'one that reads is not cut')
    t.equal(streams.counts.open, 0)
  },
)

void t.test(
  'one that is stuck a little behind is cut too, and so is none that reads',
  async (t) => {
    await using server = await world('behind', { stallMs: 300, windowBytes: 64e6, pingMs: 100 })
    const { url, board, streams } = server
    const headers = bearer((await server.make('view')).token)
    const stuck = connect(url, at, headers)
    const reads = connect(url, at, headers)
    await Promise.all([once(stuck.socket, 'open'), once(reads.socket, 'open')])
    stuck.socket.pause()
    // more than the kernel holds, less than the window
    const line = JSON.stringify('x'.repeat(64 * 1024))
    await board.append(
      'steps',
      'job.trial.1',
      1,
      Array.from({ length: 400 }, () => line),
    )
    await until(() => reads.items.length === 400)
    await until(() => streams.counts.stalled === 1)
    stuck.socket.resume()
    t.equal((await stuck.closed)[0], 1006)
    t.equal(streams.counts.open, 1)
    t.equal(reads.socket.readyState, WebSocket.OPEN)
    reads.socket.ping('still there?')
    t.equal(String((await once(reads.socket, 'pong'))[0]), 'still there?')
    reads.socket.terminate()
  },
)

void t.test('one that is dead is noticed, one that is only quiet is not', async (t) => {
  await using server = await world('pinged', { pingMs: 100 })
  const headers = bearer((await server.make('view')).token)
  const quiet = connect(server.url, at, headers)
  await once(quiet.socket, 'open')
  let pings = 0
  quiet.socket.on('ping', () => (pings += 1))
  const dead = connect(server.url, at, headers)
  await once(dead.socket, 'open')
  dead.socket.pause()
  await until(() => server.streams.counts.open === 1)
  await until(() => pings >= 5)
  t.equal(quiet.socket.readyState, WebSocket.OPEN)
  quiet.socket.close()
  dead.socket.terminate()
  await until(() => server.streams.counts.open === 0)
})
