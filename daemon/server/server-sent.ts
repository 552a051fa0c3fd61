/** Server-sent events on a response: one at the pace of its reader, and a comment now and then to find dead ones. */
import type { Call } from './router.ts'

const beatMs = 15_000

export interface ServerEvent {
  readonly id: string
  readonly event?: string
  /** One line. */
  readonly data: string
}

/** Dispose stops the beat. */
export function beginEvents({ response }: Call): Disposable {
  response.writeHead(200, {
    'content-type': 'text/event-stream',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
  })
  response.flushHeaders()
  const beat = setInterval(() => {
    if (!response.writableNeedDrain) response.write(':\n\n')
  }, beatMs)
  beat.unref()
  return { [Symbol.dispose]: () => clearInterval(beat) }
}

export async function sendEvent(call: Call, { id, event, data }: ServerEvent): Promise<void> {
  const named = event === undefined ? '' : `event: ${event}\n`
  await write(call, `id: ${id}\n${named}data: ${data}\n\n`)
}

/** Resolves when there is room for more, or nobody reads any more. */
export async function write({ response }: Call, text: string): Promise<void> {
  if (response.write(text) || response.destroyed) return
  await new Promise<void>((resolve) => {
    const done = (): void => {
      response.off('drain', done).off('close', done)
      resolve()
    }
    response.on('drain', done).on('close', done)
  })
}
