/** The other side of screen-worker.ts: one thread for all sessions of the process, started with the first. */
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import type { Size } from './resizer.ts'

export type ToScreens =
  | ({ readonly op: 'open'; readonly id: number } & Size)
  | { readonly op: 'write'; readonly id: number; readonly bytes: Uint8Array }
  | ({ readonly op: 'resize'; readonly id: number } & Size)
  | { readonly op: 'snapshot'; readonly id: number }
  | { readonly op: 'close'; readonly id: number }

export type FromScreens =
  | { readonly op: 'written'; readonly id: number }
  | { readonly op: 'reply'; readonly id: number; readonly data: string }
  | ({ readonly op: 'snapshot'; readonly id: number; readonly text: string } & Size)

export interface ScreenImage extends Size {
  readonly text: string
}

/** One terminal in the thread. Writes are answered when the terminal has taken them in. */
export interface RemoteScreen {
  write(bytes: Uint8Array): Promise<void>
  resize(size: Size): void
  snapshot(): Promise<ScreenImage>
  close(): void
}

interface Waiting {
  readonly onReply: (data: string) => void
  readonly writes: (() => void)[]
  readonly snapshots: ((image: ScreenImage) => void)[]
}

export class Screens implements AsyncDisposable {
  readonly #open = new Map<number, Waiting>()
  #worker: Worker | null = null
  #next = 1

  open(size: Size, onReply: (data: string) => void): RemoteScreen {
    const id = this.#next++
    const waiting: Waiting = { onReply, writes: [], snapshots: [] }
    this.#open.set(id, waiting)
    this.#send({ op: 'open', id, cols: size.cols, rows: size.rows })
    return {
      write: (bytes) =>
        new Promise((resolve) => {
          waiting.writes.push(resolve)
          // A copy of just these bytes: cloning a view would clone all of its buffer.
          const copy = new Uint8Array(bytes)
          this.#send({ op: 'write', id, bytes: copy }, [copy.buffer])
        }),
      resize: ({ cols, rows }) => this.#send({ op: 'resize', id, cols, rows }),
      snapshot: () =>
        new Promise((resolve) => {
          waiting.snapshots.push(resolve)
          this.#send({ op: 'snapshot', id })
        }),
      close: () => {
        if (!this.#open.delete(id)) return
        this.#send({ op: 'close', id })
        for (const resolve of waiting.writes) resolve()
        for (const resolve of waiting.snapshots) resolve({ ...size, text: '' })
      },
    }
  }

  #send(message: ToScreens, transferred: ArrayBuffer[] = []): void {
    this.#worker ??= this.#start()
    this.#worker.postMessage(message, transferred)
  }

  #start(): Worker {
    const worker = new Worker(fileURLToPath(new URL('screen-worker.ts', import.meta.url)))
    worker.unref()
    worker.on('message', (message: FromScreens) => {
      const waiting = this.#open.get(message.id)
      if (message.op === 'written') waiting?.writes.shift()?.()
      else if (message.op === 'reply') waiting?.onReply(message.data)
      else waiting?.snapshots.shift()?.(message)
    })
    return worker
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker?.terminate()
  }
}
