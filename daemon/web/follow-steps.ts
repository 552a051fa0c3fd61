/** The steps of an execution from a number on, in pieces; with `follow` until the signal aborts, over lost connections. */
import type { StepDocument } from '../protocol/board-documents.ts'
import { lines } from './api.ts'

export async function followSteps(
  id: string,
  { from, follow, signal }: { from: number; follow: boolean; signal: AbortSignal },
  take: (steps: StepDocument[]) => void,
): Promise<void> {
  const path = `/v1/board/steps/${id}/lines`
  let next = from
  const read = (texts: readonly string[]): void => {
    next += texts.length
    take(texts.map((text) => JSON.parse(text) as StepDocument))
  }
  if (!follow) {
    for await (const piece of lines(`${path}?from=${next}`, { signal })) read(piece)
    return
  }
  // one connection less for a browser that has six: what nobody looks at is not followed
  const connect = (): void => {
    if (signal.aborted || document.hidden || source !== null) return
    const mine = new EventSource(`${path}?from=${next}&follow=true`)
    source = mine
    // the browser would ask for what follows the last one it saw; `from` says the same after a pause
    mine.addEventListener('message', ({ data }: MessageEvent<string>) => read([data]))
    mine.addEventListener('error', () => {
      if (mine.readyState !== EventSource.CLOSED) return
      source = null
      setTimeout(connect, 2000)
    })
  }
  const turn = (): void => {
    if (!document.hidden) return connect()
    source?.close()
    source = null
  }
  let source: EventSource | null = null
  document.addEventListener('visibilitychange', turn, { signal })
  signal.addEventListener('abort', () => source?.close(), { once: true })
  connect()
}
