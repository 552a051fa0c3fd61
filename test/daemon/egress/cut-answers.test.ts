/** Answers of plain HTTP that are cut, or come before all of the request was sent: neither looks like what it isn't. */
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import t from 'tap'
import { dialTcp } from '../../../daemon/egress/dial.ts'
import type { EgressOptions } from '../../../daemon/egress/egress.ts'
import { allowedHost, closed, eventually, listenOn, World } from './world.ts'

const request = (method: string, headers = ''): string =>
  `${method} http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\n${headers}\r\n`

/** Its only origin answers by hand, once a head has come. */
async function world(
  answer: (socket: Socket) => void,
  limits: EgressOptions['limits'] = {},
  dialed: () => Promise<void> = async () => undefined,
): Promise<
  AsyncDisposable & { readonly world: World; readonly client: Socket; readonly read: () => string }
> {
  await using undo = new AsyncDisposableStack()
  const origin = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined)
    socket.once('data', () => {
      socket.resume()
      answer(socket)
    })
  })
  undo.defer(() => void origin.close())
  const port = await listenOn(origin)
  const opened = undo.use(
    await World.open({
      limits,
      dial: async (target, options) => {
        const socket = await dialTcp({ ...target, address: '127.0.0.1', port }, options)
        await dialed()
        return socket
      },
    }),
  )
  const client = connect({ port: opened.ports.proxy, host: '127.0.0.1' })
  undo.defer(() => void client.destroy())
  let text = ''
  client.on('error', () => undefined).on('data', (chunk: Buffer) => (text += String(chunk)))
  const moved = undo.move()
  return {
    ...{ world: opened, client, read: () => text },
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  }
}

const close = (world: World) => world.until((seen) => seen.find(({ kind }) => kind === 'close'))

void t.test('an answer that is cut does not look whole', async (t) => {
  const endless = 'HTTP/1.1 200 OK\r\n\r\n'
  const rows: readonly (readonly [
    why: string,
    answer: (socket: Socket) => void,
    limits: EgressOptions['limits'],
    detail: string,
  ])[] = [
    [
      'reset',
      (socket) =>
        socket.write(`${endless}hello`, () => setImmediate(() => socket.resetAndDestroy())),
      {},
      'upstream failed',
    ],
    ['idle', (socket) => socket.write(`${endless}hello`), { idleTimeoutMs: 150 }, 'idle'],
    [
      'too long',
      (socket) => socket.write(`${endless}${'x'.repeat(20_000)}`),
      { connectionBytes: 10_000 },
      'byte limit reached',
    ],
    [
      'no last chunk',
      (socket) => socket.end('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n'),
      {},
      'upstream failed',
    ],
  ]
  for (const [why, answer, limits, detail] of rows) {
    await using here = await world(answer, limits)
    here.client.write(request('GET'))
    await closed(here.client)
    t.match(await close(here.world), { detail }, why)
    t.notMatch(here.read(), /\r\n0\r\n\r\n$/, `${why}: no end is made up`)
  }
  await using whole = await world((socket) => socket.end(`${endless}hello`))
  whole.client.write(request('GET'))
  await eventually(() => whole.read().endsWith('\r\n5\r\nhello\r\n0\r\n\r\n'))
  t.match(await close(whole.world), { detail: 'ended', bytesDown: endless.length + 5 })
})

void t.test('who is answered before all was sent can send the rest, and ask again', async (t) => {
  await using here = await world((socket) =>
    socket.end('HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno'),
  )
  const { client, read } = here
  client.write(request('POST', 'Content-Length: 30000000\r\n'))
  await eventually(() => read().endsWith('\r\n\r\nno'))
  const sent = once(client, 'drain')
  client.write(Buffer.alloc(30_000_000, 'a'))
  await sent
  client.write(request('GET'))
  await eventually(() => read().split('HTTP/1.1 413').length === 3)
  t.match(read(), /no$/)
})

void t.test('a client that goes amid its answer is said to have gone', async (t) => {
  await using here = await world((socket) =>
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello'),
  )
  here.client.write(request('GET'))
  await eventually(() => here.read().endsWith('hello'))
  here.client.resetAndDestroy()
  t.match(await close(here.world), { detail: 'client gone' })
})

void t.test('a client that goes while its host is dialed leaves nothing behind', async (t) => {
  for (const method of ['HEAD', 'GET', 'POST']) {
    let asked = 0
    await using here = await world(
      (socket) => {
        asked += 1
        socket.end('HTTP/1.1 204 No Content\r\n\r\n')
      },
      {},
      async () => {
        here.client.resetAndDestroy()
        await eventually(() => here.world.egress.openSockets === 0)
      },
    )
    here.client.write(request(method, method === 'POST' ? 'Content-Length: 5\r\n' : ''))
    t.match(await close(here.world), { detail: 'client gone', bytesUp: 0, bytesDown: 0 }, method)
    t.equal(asked, 0, 'and nobody is asked for it')
    t.strictSame(here.world.faults, [])
  }
})
