/**
 * Server-sent events, as much as the model APIs use of them: `data:` payloads, comments, a final `[DONE]`. A name, where
 * an API gives its events one, repeats the `type` of the payload, and is made from it.
 */
import { isObject } from '../../policy/model-check.ts'

export type SseItem =
  | { readonly kind: 'data'; readonly data: string }
  /** Sent by providers to keep a slow stream alive. */
  | { readonly kind: 'comment' }

/** Splits a byte stream into items, wherever its chunks are cut. An item that the stream's end cut off is dropped. */
export class SseReader {
  /** The runtime strips a byte order mark or not, depending on where the chunks are cut. */
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  #started = false
  #rest = ''
  #data: string[] = []

  read(chunk: Uint8Array): SseItem[] {
    const items: SseItem[] = []
    this.#rest += this.#decoder.decode(chunk, { stream: true })
    if (!this.#started && this.#rest !== '') {
      this.#started = true
      this.#rest = this.#rest.replace(/^\ufeff/, '')
    }
    let start = 0
    for (;;) {
      const end = nextBreak(this.#rest, start)
      if (end === -1) break
      const item = this.#line(this.#rest.slice(start, end))
      if (item !== null) items.push(item)
      const crlf = this.#rest[end] === '\r' && this.#rest[end + 1] === '\n'
      start = end + (crlf ? 2 : 1)
    }
    this.#rest = this.#rest.slice(start)
    return items
  }

  #line(line: string): SseItem | null {
    if (line === '') {
      if (this.#data.length === 0) return null
      const data = this.#data.join('\n')
      this.#data = []
      return { kind: 'data', data }
    }
    if (line.startsWith(':')) return { kind: 'comment' }
    if (line.startsWith('data:')) this.#data.push(line.slice(line[5] === ' ' ? 6 : 5))
    return null
  }
}

/** Where the next line ends; a CR that is the last character waits for the LF that may follow it. */
function nextBreak(text: string, from: number): number {
  const lf = text.indexOf('\n', from)
  const cr = text.indexOf('\r', from)
  if (cr === -1 || (lf !== -1 && lf < cr)) return lf
  return cr === text.length - 1 ? -1 : cr
}

export function sseEvent(payload: unknown, { named }: { named: boolean }): string {
  const type = named && isObject(payload) ? payload['type'] : null
  const name = typeof type === 'string' && /^[\w.-]+$/.test(type) ? `event: ${type}\n` : ''
  return `${name}data: ${JSON.stringify(payload)}\n\n`
}
export const sseDone = 'data: [DONE]\n\n'
export const sseComment = ': \n\n'
