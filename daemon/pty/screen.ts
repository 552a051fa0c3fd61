/**
 * The screen of one session: its terminal is fed from the ring, behind the log and at a bounded pace, so that a flood
 * costs the host a part of a core and no memory. One that is too far behind leaves bytes out and says so: its snapshots
 * are approximate until the program clears the screen by itself. A snapshot is of an exact offset.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { SnapshotFacts } from '../protocol/pty-frames.ts'
import type { ByteRing } from './byte-ring.ts'
import type { Size } from './resizer.ts'
import type { RemoteScreen, Screens } from './screens.ts'

const pieceBytes = 64 * 1024
const lagLimitBytes = 1024 * 1024
/** Of a flood that was left out, this much of its end is shown. */
const keptBytes = 128 * 1024
/** While it keeps up, and in a flood of which it leaves most out anyway. */
const bytesPerMs = 6_000
const floodBytesPerMs = 1_000
const floodBytes = 256 * 1024
const unpacedBytes = 4 * 1024
/** A key's echo is on its way to those who look on by then: the thread of the screens would wake beside them. */
const afterMs = 8

export interface Snapshot extends SnapshotFacts {
  readonly bytes: Buffer
}

export class Screen {
  readonly #ring: ByteRing
  readonly #remote: RemoteScreen
  readonly #resizes: { readonly offset: number; readonly size: Size }[] = []
  readonly #wanted: { readonly offset: number; readonly resolve: (snapshot: Snapshot) => void }[] =
    []
  #fed = 0
  #size: Size
  #approximate = false
  #running = false
  #closed = false

  constructor(ring: ByteRing, screens: Screens, size: Size, onReply: (data: string) => void) {
    this.#ring = ring
    this.#size = size
    this.#remote = screens.open(size, onReply)
  }

  /** The ring has more. */
  wake(): void {
    if (!this.#running && !this.#closed) void this.#run()
  }

  resize(size: Size): void {
    this.#resizes.push({ offset: this.#ring.end, size })
    this.wake()
  }

  /** Of what the program had put out by now, or a little later. */
  snapshot(): Promise<Snapshot> {
    const { promise, resolve } = Promise.withResolvers<Snapshot>()
    if (this.#closed) resolve(this.#empty())
    else this.#wanted.push({ offset: this.#ring.end, resolve })
    this.wake()
    return promise
  }

  close(): void {
    this.#closed = true
    this.#remote.close()
    for (const { resolve } of this.#wanted.splice(0)) resolve(this.#empty())
  }

  #empty(): Snapshot {
    return { offset: this.#fed, ...this.#size, approximate: true, bytes: Buffer.alloc(0) }
  }

  async #run(): Promise<void> {
    this.#running = true
    if (this.#wanted.length === 0) await delay(afterMs)
    while (!this.#closed) {
      this.#applyResizes()
      if (this.#wanted.some(({ offset }) => offset <= this.#fed)) await this.#answer()
      else if (this.#fed < this.#ring.end) await this.#feed()
      else break
    }
    this.#running = false
  }

  #applyResizes(): void {
    for (
      let next = this.#resizes[0];
      next !== undefined && next.offset <= this.#fed;
      next = this.#resizes[0]
    ) {
      this.#resizes.shift()
      this.#size = next.size
      this.#remote.resize(next.size)
    }
  }

  async #feed(): Promise<void> {
    const ring = this.#ring
    if (ring.end - this.#fed > lagLimitBytes || this.#fed < ring.start) {
      this.#fed = ring.lineStartFrom(ring.end - keptBytes)
      this.#approximate = true
    }
    const resizeAt = this.#resizes[0]?.offset ?? Infinity
    const most = Math.min(pieceBytes, Math.max(1, resizeAt - this.#fed))
    const bytes = ring.read(this.#fed, most)
    await this.#remote.write(bytes)
    this.#fed += bytes.length
    if (bytes.length <= unpacedBytes || this.#wanted.length > 0) return
    const flood = ring.end - this.#fed > floodBytes
    await delay(bytes.length / (flood ? floodBytesPerMs : bytesPerMs))
  }

  async #answer(): Promise<void> {
    const { text, cols, rows } = await this.#remote.snapshot()
    const snapshot = {
      offset: this.#fed,
      cols,
      rows,
      approximate: this.#approximate,
      bytes: Buffer.from(text),
    }
    const ready = this.#wanted.filter(({ offset }) => offset <= this.#fed)
    for (const each of ready) this.#wanted.splice(this.#wanted.indexOf(each), 1)
    for (const { resolve } of ready) resolve(snapshot)
  }
}
