/** Routes of the board: documents, numbered lines, and the stream of changes (server-sent events, resumable by id). */
import { RequestError } from '../../errors.ts'
import { z } from 'zod'
import {
  boardLinesSchema,
  boardListSchema,
  boardPutSchema,
  boardQuerySchema,
  changesQuerySchema,
} from '../../protocol/board.ts'
import { streamProtocol } from '../../protocol/stream-frames.ts'
import { zodMessage } from '../../protocol/zod-message.ts'
import { followQuerySchema, numberIn, serveNumbered, StreamSockets } from '../numbered-stream.ts'
import { readText, sendJson, type Call, type Router } from '../router.ts'
import { beginEvents, sendEvent } from '../server-sent.ts'
import { keyOf, type Board } from './board.ts'

const named = ({ params }: Pick<Call, 'params'>): { kind: string; id: string } => {
  const { kind = '', id = '' } = params
  keyOf(kind, id)
  return { kind, id }
}

function queryOf<T>({ url }: Call, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(Object.fromEntries(url.searchParams))
  if (parsed.success) return parsed.data
  throw new RequestError('bad_request', 'caller', zodMessage(parsed.error))
}

function jsonText(text: string, what: string): string {
  try {
    JSON.parse(text)
    return text
  } catch (error) {
    throw new RequestError(
      'bad_request',
      'caller',
      `${what} is not JSON: ${(error as Error).message}`,
    )
  }
}

const unknown = ({ kind, id }: { kind: string; id: string }): RequestError =>
  new RequestError('not_found', 'caller', `nothing has been published as ${kind}/${id}`)

export function addBoardRoutes(router: Router, board: Board, streams = new StreamSockets()): void {
  // before `/:kind`, which would take it for a kind
  router.on(
    'GET',
    '/v1/board/changes',
    {
      role: 'view',
      summary: 'what is published, as it comes',
      query: changesQuerySchema,
      type: 'text/event-stream',
    },
    (call) => streamChanges(call, board),
  )

  router.on(
    'GET',
    '/v1/board/:kind',
    {
      role: 'view',
      summary: 'what runners have published of a kind',
      query: boardQuerySchema,
      answer: boardListSchema,
    },
    async (call) => {
      const { prefix = '', suffix = '', full } = queryOf(call, boardQuerySchema)
      const kind = call.params['kind'] ?? ''
      const found = board.list(kind, (id) => id.startsWith(prefix) && id.endsWith(suffix))
      const { at } = board
      const entries = []
      for (const facts of found) {
        if (full === true && facts.lines === undefined) {
          const whole = await board.get(kind, facts.id)
          if (whole !== null) entries.push(board.entry(whole.facts, whole.text))
        } else entries.push({ ...board.entry(facts), document: undefined })
      }
      sendJson(call.response, 200, { at, now: new Date().toISOString(), entries })
    },
  )

  router.on(
    'GET',
    '/v1/board/:kind/:id',
    { role: 'view', summary: 'one published document', answer: z.json() },
    async (call) => {
      const found = await board.get(named(call).kind, named(call).id)
      if (found === null) throw unknown(named(call))
      const { response, request } = call
      const etag = `"${board.epoch}-${found.facts.rev}"`
      response.setHeader('etag', etag).setHeader('cache-control', 'no-cache')
      if (request.headers['if-none-match'] === etag) return void response.writeHead(304).end()
      response.writeHead(200, { 'content-type': 'application/json' }).end(found.text)
    },
  )

  router.on(
    'PUT',
    '/v1/board/:kind/:id',
    {
      role: 'run',
      summary: 'publishes a document, or its next version',
      body: z.json(),
      answer: boardPutSchema,
    },
    async (call) => {
      const { kind, id } = named(call)
      const text = await readText(call, board.limits.maxDocumentBytes)
      const { rev } = await board.put(kind, id, jsonText(text, 'the document'))
      sendJson(call.response, 200, { rev })
    },
  )

  router.on(
    'DELETE',
    '/v1/board/:kind/:id',
    {
      role: 'run',
      summary: 'takes it off the board',
      answer: z.strictObject({ removed: z.boolean() }),
    },
    async (call) => {
      const { kind, id } = named(call)
      sendJson(call.response, 200, { removed: await board.remove(kind, id) })
    },
  )

  router.on(
    'POST',
    '/v1/board/:kind/:id/lines',
    {
      role: 'run',
      summary: 'appends numbered lines from number `from` on; those that are there are left out',
      query: z.strictObject({ from: z.coerce.number().int().positive().optional() }),
      bodyType: 'application/x-ndjson',
      answer: boardLinesSchema,
    },
    async (call) => {
      const { kind, id } = named(call)
      const text = await readText(call, board.limits.maxDocumentBytes)
      // written anew: what is a line to one reader must not be two to another
      const lines = text
        .split('\n')
        .filter((line) => line !== '')
        .map((line, index) => JSON.stringify(JSON.parse(jsonText(line, `line ${index + 1}`))))
      const total = await board.append(kind, id, numberIn(call.url), lines)
      sendJson(call.response, 200, { lines: total })
    },
  )

  router.on(
    'GET',
    '/v1/board/:kind/:id/lines',
    {
      role: 'view',
      summary: 'numbered lines, also as they come; as server-sent events where they are accepted',
      query: followQuerySchema,
      type: 'application/x-ndjson',
    },
    (call) => {
      const { kind, id } = named(call)
      return serveNumbered(call, (wanted) => board.lines(kind, id, wanted))
    },
  )

  router.onUpgrade(
    '/v1/board/:kind/:id/lines',
    { role: 'view', summary: `the same over WebSocket (${streamProtocol})` },
    (request, socket, head, params, access) => {
      const { kind, id } = named({ params })
      streams.serve({ request, socket, head, access }, (wanted) => board.lines(kind, id, wanted))
    },
  )
}

async function streamChanges(call: Call, board: Board): Promise<void> {
  const { kinds, prefix = '', from } = queryOf(call, changesQuerySchema)
  const wanted = kinds === undefined ? null : new Set(kinds.split(','))
  const header = call.request.headers['last-event-id']
  let at = (Array.isArray(header) ? header[0] : header) ?? from ?? board.at
  using _beat = beginEvents(call)
  // a reader that waits for its first event knows that it is connected
  await sendEvent(call, { id: at, event: 'hello', data: '{}' })
  while (!call.signal.aborted) {
    const more = board.wait(call.signal)
    const next = board.since(at)
    for (const change of next.changes) {
      if (change.type === 'reset') {
        await sendEvent(call, { id: next.at, event: 'reset', data: '{}' })
        continue
      }
      const { facts, type } = change
      if (wanted?.has(facts.kind) === false || !facts.id.startsWith(prefix)) continue
      const entry = type === 'put' ? board.entry(facts) : { kind: facts.kind, id: facts.id }
      await sendEvent(call, {
        id: `${board.epoch}-${facts.rev}`,
        event: type,
        data: JSON.stringify(entry),
      })
    }
    at = next.at
    if (next.changes.length === 0) await more
  }
}
