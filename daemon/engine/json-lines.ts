/** The engine's progress and event streams: one JSON object a line. */
import { StringDecoder } from 'node:string_decoder'

/** A line longer than this is a fault of the sender. */
const maxLineBytes = 8 * 1024 * 1024

export async function* jsonLines(
  stream: AsyncIterable<Buffer | string>,
): AsyncGenerator<Readonly<Record<string, unknown>>> {
  const decoder = new StringDecoder('utf8')
  let pending = ''
  for await (const chunk of stream) {
    pending += typeof chunk === 'string' ? chunk : decoder.write(chunk)
    if (pending.length > maxLineBytes)
      throw new RangeError(`a line of the engine's stream is longer than ${maxLineBytes} bytes`)
    for (let end = pending.indexOf('\n'); end >= 0; end = pending.indexOf('\n')) {
      const line = pending.slice(0, end).trim()
      pending = pending.slice(end + 1)
      if (line !== '') yield parse(line)
    }
  }
  if (pending.trim() !== '') yield parse(pending)
}

function parse(line: string): Record<string, unknown> {
  const value: unknown = JSON.parse(line)
  if (typeof value !== 'object' || value === null)
    throw new TypeError(`not an object: ${line.slice(0, 200)}`)
  return value as Record<string, unknown>
}
