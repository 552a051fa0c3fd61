/** Plays a recording in real time: at a speed, with long waits cut short. Output is as hostile as it was live. */
import { setTimeout as delay } from 'node:timers/promises'
import type { Cast } from '../../daemon/protocol/pty-cast.ts'
import { TerminalFilter } from '../../daemon/protocol/pty-filter.ts'

export interface PlayOptions {
  readonly speed: number
  /** Longer waits last so long. */
  readonly idleLimitMs: number
  readonly signal: AbortSignal
  readonly write: (bytes: Uint8Array) => Promise<void>
  /** Resolves when the player may go on: it is paused otherwise. */
  readonly running: () => Promise<void>
  readonly onMark?: (label: string) => void
}

export async function play(cast: Cast, options: PlayOptions): Promise<void> {
  const { speed, idleLimitMs, signal } = options
  let last = 0
  let due = performance.now()
  for (const { time, code, data } of cast.events) {
    const wait = Math.min(idleLimitMs, Math.max(0, time - last) * 1000) / speed
    last = time
    due = Math.max(due + wait, performance.now() - 1000)
    const now = performance.now()
    if (due > now) await delay(due - now, undefined, { signal }).catch(() => {})
    await options.running()
    if (signal.aborted) return
    if (code === 'o') await options.write(Buffer.from(data))
    else if (code === 'm') options.onMark?.(data)
    else if (code === 'r') {
      const [cols, rows] = data.split('x')
      options.onMark?.(`the terminal is ${cols}x${rows} from here on`)
    }
  }
}

/** What asciinema 3 reads: times are intervals. */
export function toV3(cast: Cast): string {
  const { width, height, timestamp, title, env } = cast.header
  const header = {
    version: 3,
    term: { cols: width, rows: height, type: env?.['TERM'] ?? 'xterm-256color' },
    ...(timestamp === undefined ? {} : { timestamp }),
    ...(title === undefined ? {} : { title }),
  }
  let last = 0
  const lines = cast.events.map(({ time, code, data }) => {
    const interval = Math.max(0, time - last)
    last = Math.max(last, time)
    return `[${interval.toFixed(3)}, ${JSON.stringify(code)}, ${JSON.stringify(data)}]`
  })
  return `${[JSON.stringify(header), ...lines].join('\n')}\n`
}

/** Text alone: no colours, no cursor; of a line that was written over, the last version. */
export function toText(cast: Cast): string {
  const filter = new TerminalFilter({ plain: true })
  const decoder = new TextDecoder()
  let text = ''
  for (const { code, data } of cast.events)
    if (code === 'o') text += decoder.decode(filter.push(Buffer.from(data)), { stream: true })
  return text
    .replaceAll(/\r+\n/g, '\n')
    .split('\n')
    .map((line) => line.slice(line.lastIndexOf('\r') + 1))
    .join('\n')
}

/** The output as it was, escape sequences and all. */
export const toRaw = (cast: Cast): string =>
  cast.events.flatMap(({ code, data }) => (code === 'o' ? [data] : [])).join('')
