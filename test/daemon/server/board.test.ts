/** The board over its API: documents, numbered lines, changes that can be resumed, bounds; metrics and OpenAPI beside it. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, open, readdir, writeFile } from 'node:fs/promises'
import http from 'node:http'
import path from 'node:path'
import t from 'tap'
import { DaemonClient } from '../../../daemon/protocol/client.ts'
import { boardListSchema } from '../../../daemon/protocol/board.ts'
import { addBoardRoutes } from '../../../daemon/server/board/board-routes.ts'
import { Board, type BoardLimits } from '../../../daemon/server/board/board.ts'
import { openApi } from '../../../daemon/server/openapi.ts'
import { Router, sendJson } from '../../../daemon/server/router.ts'
import { scratch, silent, until } from './listener.ts'

const { directory, remove } = await scratch()
t.teardown(remove)
const roomy: BoardLimits = { maxDocuments: 100, maxDocumentBytes: 100_000, maxBytes: 1_000_000 }

async function serve(name: string, limits: Partial<BoardLimits> = {}) {
  const undo = new AsyncDisposableStack()
  const place = path.join(directory, name)
  const board = await Board.open(place, { ...roomy, ...limits }, silent)
  const router = new Router(silent)
  addBoardRoutes(router, board)
  const server = router.createServer()
  const socketPath = path.join(directory, `${name}.sock`)
  server.listen(socketPath)
  await once(server, 'listening')
  undo.defer(() => {
    server.closeAllConnections()
    server.close()
  })
  const client = undo.use(new DaemonClient(socketPath))
  const list = async (query: string) =>
    boardListSchema.parse(await client.call('GET', `/v1/board/${query}`))
  return {
    board,
    place,
    socketPath,
    client,
    list,
    [Symbol.asyncDispose]: () => undo.disposeAsync(),
  }
}

interface Change {
  readonly id: string
  readonly event: string
  readonly data: { readonly kind?: string; readonly id?: string; readonly document?: unknown }
}

/** Server-sent events as they come. */
function listen(socketPath: string, at: string, headers: Record<string, string> = {}) {
  const events: Change[] = []
  const request = http.get({
    socketPath,
    path: at,
    headers: { accept: 'text/event-stream', ...headers },
    agent: false,
  })
  request.on('error', () => {})
  request.on('response', (response) => {
    let rest = ''
    response.on('error', () => {})
    response.setEncoding('utf8').on('data', (chunk: string) => {
      const parts = (rest + chunk).split('\n\n')
      rest = parts.pop() ?? ''
      for (const part of parts) {
        const field = (name: string): string =>
          new RegExp(`^${name}: (.*)$`, 'm').exec(part)?.[1] ?? ''
        if (field('id') !== '')
          events.push({
            id: field('id'),
            event: field('event'),
            data: JSON.parse(field('data')) as Change['data'],
          })
      }
    })
  })
  return { events, [Symbol.dispose]: () => request.destroy() }
}

void t.test('what was published is there again after a restart, torn files are not', async (t) => {
  const large = { text: 'x'.repeat(60_000) }
  {
    await using one = await serve('kept')
    await one.client.call('PUT', '/v1/board/job/j1', { body: { name: 'first' } })
    await one.client.call('PUT', '/v1/board/job/j1', { body: { name: 'second' } })
    await one.client.call('PUT', '/v1/board/evidence/j1.t1.patch', { body: large })
    await one.client.callText('POST', '/v1/board/steps/j1.t1/lines?from=1', '{"n":1}\n{"n":2}\n')
  }
  await appendFile(path.join(directory, 'kept/steps/j1.t1.lines'), '{"n":3')
  await writeFile(path.join(directory, 'kept/job/j2.json'), '{"rev":9,"ti')
  await writeFile(path.join(directory, 'kept/job/j3.json.1.tmp'), 'left')
  await using again = await serve('kept')
  t.match((await again.list('job?full=true')).entries, [{ id: 'j1', document: { name: 'second' } }])
  t.same(await again.client.call('GET', '/v1/board/evidence/j1.t1.patch'), large)
  t.match(
    (await again.list('evidence')).entries,
    [{ id: 'j1.t1.patch', document: undefined }],
    'a list names large ones only',
  )
  t.same(await again.client.callText('POST', '/v1/board/steps/j1.t1/lines?from=3', '{"n":3}\n'), {
    lines: 3,
  })
  t.same(await readdir(path.join(directory, 'kept/job')), ['j1.json'])
  t.strictSame((await again.list('trial?prefix=j1.')).entries, [])
  t.match((await again.list('steps')).entries, [{ id: 'j1.t1', lines: 3 }])
  t.match((await again.list('evidence?suffix=.patch')).entries.length, 1)
  t.same(await again.client.call('DELETE', '/v1/board/job/j1'), { removed: true })
  t.same(await again.client.call('DELETE', '/v1/board/job/j1'), { removed: false })
  await t.rejects(again.client.call('GET', '/v1/board/job/j1'), { code: 'not_found' })
})

void t.test('lines are taken once each, in order, and followed by number', async (t) => {
  await using one = await serve('lines')
  const post = (from: number, text: string) =>
    one.client.callText('POST', `/v1/board/steps/a/lines?from=${from}`, text)
  t.same(await post(1, '{"n":1}\n{"n":2}\n'), { lines: 2 })
  t.same(
    await post(1, '{"n":1}\n{"n":2}\n{"n": 3}\r\n'),
    { lines: 3 },
    'those that are there are left out',
  )
  await t.rejects(post(5, '{"n":5}\n'), {
    code: 'board_conflict',
    message: /has 3 lines; send them from 4/,
  })
  await t.rejects(post(4, '{"n":4}\nno json\n'), { code: 'bad_request', message: /line 2/ })
  await t.rejects(one.client.call('PUT', '/v1/board/steps/a', { body: {} }), {
    code: 'board_conflict',
  })
  using follower = listen(one.socketPath, '/v1/board/steps/a/lines?from=2&follow=true')
  await until(() => follower.events.length === 2)
  await post(4, '{"n":4}\n')
  await until(() => follower.events.length === 3)
  t.match(follower.events, [
    { id: '2', data: { n: 2 } },
    { id: '3', data: { n: 3 } },
    { id: '4', data: { n: 4 } },
  ])
  using resumed = listen(one.socketPath, '/v1/board/steps/a/lines?from=1&follow=true', {
    'last-event-id': '3',
  })
  await until(() => resumed.events.length === 1)
  t.match(resumed.events, [{ id: '4' }], 'the last one seen counts, not the first one asked for')
})

void t.test(
  'who comes back near the end of many lines costs nothing of what is before',
  async (t) => {
    const place = path.join(directory, 'many')
    const all = Array.from({ length: 3_000 }, (_, index) => `{"n":"${'é'.repeat(index % 7)}"}`)
    const first = await Board.open(place, roomy, silent)
    for (let at = 0, size = 1; at < all.length; at += size, size = ((size * 7) % 101) + 1)
      await first.append('steps', 'a', at + 1, all.slice(at, at + size))
    const { signal } = new AbortController()
    const read = async (board: Board, from: number) =>
      (await Array.fromAsync(board.lines('steps', 'a', { from, follow: false, signal }))).flat()
    const wanted = (from: number) =>
      all.map((line, index) => ({ n: index + 1, line })).slice(from - 1)
    const froms = [1, 2, 256, 257, 258, 1_000, 2_817, 3_000, 3_001, 9_999]
    for (const board of [first, await Board.open(place, roomy, silent)])
      for (const from of froms) t.same(await read(board, from), wanted(from), `from ${from}`)
    // whoever reads it from its start counts one line too few
    const file = await open(path.join(place, 'steps/a.lines'), 'r+')
    await file.write(' ', Buffer.byteLength(all[0] ?? ''))
    await file.close()
    t.same(await read(first, 2_900), wanted(2_900))
    await first.remove('steps', 'a')
    t.equal(await first.append('steps', 'a', 1, all.slice(0, 300)), 300)
    t.same(await read(first, 299), wanted(299).slice(0, 2), 'a new file has its own marks')
  },
)

void t.test('lines for which there is no room leave nothing behind', async (t) => {
  const board = await Board.open(path.join(directory, 'full'), roomy, silent)
  const append = (from: number, text: string) => board.append('steps', 'job.trial.1', from, [text])
  await append(1, '"one"')
  const most = (bytes: string) =>
    execFileSync('prlimit', ['--pid', String(process.pid), `--fsize=${bytes}:`])
  const told = (): void => {}
  process.on('SIGXFSZ', told)
  most('1000')
  try {
    await t.rejects(append(2, JSON.stringify('x'.repeat(5_000))), { code: 'EFBIG' })
  } finally {
    most('unlimited')
    process.off('SIGXFSZ', told)
  }
  t.equal(await append(2, '"two"'), 2)
  const { signal } = new AbortController()
  t.same(
    (
      await Array.fromAsync(board.lines('steps', 'job.trial.1', { from: 1, follow: false, signal }))
    ).flat(),
    [
      { n: 1, line: '"one"' },
      { n: 2, line: '"two"' },
    ],
  )
})

void t.test('changes come as they are made, and those that were missed come first', async (t) => {
  await using one = await serve('changes')
  const put = (kind: string, id: string, body: unknown) =>
    one.client.call('PUT', `/v1/board/${kind}/${id}`, { body })
  await put('job', 'j1', { n: 1 })
  const { at } = await one.list('job')
  using live = listen(one.socketPath, `/v1/board/changes?kinds=job&from=${at}`)
  await until(() => live.events.length === 1)
  await put('job', 'j1', { n: 2 })
  await put('trial', 'j1.t1', { n: 1 })
  await put('job', 'other', { n: 3 })
  await until(() => live.events.length === 3)
  t.match(live.events, [
    { event: 'hello' },
    { event: 'put', data: { id: 'j1', document: { n: 2 } } },
    { event: 'put', data: { id: 'other' } },
  ])
  const seen = live.events[1]?.id ?? ''
  await put('job', 'j1', { n: 4 })
  await put('job', 'j1', { n: 5 })
  await one.client.call('DELETE', '/v1/board/job/other')
  using resumed = listen(one.socketPath, '/v1/board/changes?kinds=job&prefix=', {
    'last-event-id': seen,
  })
  await until(() => resumed.events.length === 3)
  t.match(resumed.events, [
    { event: 'hello' },
    { event: 'put', data: { id: 'j1', document: { n: 5 } } },
    { event: 'remove', data: { id: 'other' } },
  ])
  for (const from of ['elsewhere-1', 'nonsense', `${one.board.epoch}-9999`]) {
    using lost = listen(one.socketPath, `/v1/board/changes?from=${from}`)
    await until(() => lost.events.length >= 2)
    t.equal(lost.events[1]?.event, 'reset', `${from}: what was seen is of another board`)
  }
})

void t.test('the board is bounded, and takes nothing but JSON by good names', async (t) => {
  await using one = await serve('bounds', {
    maxDocuments: 3,
    maxDocumentBytes: 1_000,
    maxBytes: 2_000,
  })
  const put = (at: string, body: unknown) => one.client.call('PUT', `/v1/board/${at}`, { body })
  for (let n = 1; n <= 4; n += 1) await put(`job/j${n}`, { n })
  t.same(
    (await one.list('job')).entries.map(({ id }) => id),
    ['j2', 'j3', 'j4'],
    'the oldest made room',
  )
  await put('job/j2', 'x'.repeat(900))
  await put('job/j3', 'x'.repeat(900))
  await put('job/j4', 'x'.repeat(900))
  t.same(
    (await one.list('job')).entries.map(({ id }) => id),
    ['j3', 'j4'],
    'so they did for bytes',
  )
  await t.rejects(put('job/big', 'x'.repeat(1_001)), { code: 'too_large' })
  await t.rejects(
    one.client.callText(
      'POST',
      '/v1/board/steps/a/lines',
      `${JSON.stringify('x'.repeat(990))}\n`.repeat(2),
    ),
    { code: 'too_large' },
  )
  await t.rejects(one.client.callText('PUT', '/v1/board/job/a', '{"torn'), { code: 'bad_request' })
  for (const at of [
    'job/..%2F..%2Fetc',
    'job/.hidden',
    'JOB/a',
    'job/a%00b',
    `job/${'a'.repeat(200)}`,
  ])
    await t.rejects(put(at, {}), { code: 'bad_request' }, at)
  t.same((await readdir(one.place)).toSorted(), ['epoch', 'job'], 'nothing was made elsewhere')
})

void t.test('the OpenAPI document has every route, its role and its schemas', (t) => {
  const router = new Router(silent)
  router.on('GET', '/page', { role: 'anyone', summary: 'no part of the API' }, () => {})
  router.on(
    'POST',
    '/v1/things/:id',
    { role: 'run', summary: 'a thing', answer: boardListSchema, status: 201 },
    ({ response }) => sendJson(response, 201, {}),
  )
  router.onUpgrade('/v1/things/:id/attach', { role: 'view', summary: 'a socket' }, () => {})
  const document = openApi(router)
  t.match(document, {
    openapi: '3.1.0',
    paths: {
      '/v1/things/{id}': {
        post: {
          summary: 'a thing',
          'x-closedbook-role': 'run',
          parameters: [{ name: 'id', in: 'path' }],
          responses: {
            201: {
              content: {
                'application/json': { schema: { type: 'object', properties: { entries: {} } } },
              },
            },
            default: {},
          },
        },
      },
      '/v1/things/{id}/attach': { get: { responses: { 101: {} } } },
    },
  })
  t.notMatch(JSON.stringify(document), '"/page"')
  t.end()
})
