/** What pristine images hold, read once for an image and workdir and shared by all trials of this process. */
import { ClosedbookError } from '../../daemon/protocol/errors.ts'
import type { Task } from '../task/task.ts'
import { readPristine, type Pristine } from './pristine.ts'
import type { Sandbox } from './sandbox.ts'

export class PristineCache {
  readonly #known = new Map<string, Promise<Pristine>>()

  /** True when nothing of this image need be read any more, whichever of its directories is meant. */
  knows(image: string): boolean {
    return [...this.#known.keys()].some((key) => (JSON.parse(key) as unknown[])[0] === image)
  }

  /**
   * `open` is called only when the image was not read before; a failed reading is forgotten. Whoever waits for another's
   * reads for itself when that one fails: the other trial may have been cancelled.
   */
  async get(
    image: string,
    task: Pick<Task, 'verify' | 'baseCommit'>,
    workdir: string,
    open: () => Promise<Sandbox>,
    signal: AbortSignal,
  ): Promise<Pristine> {
    const mode = task.verify === 'snapshot' ? 'snapshot' : 'patch'
    const key = JSON.stringify([image, workdir, mode, task.baseCommit])
    for (let known = this.#known.get(key); known !== undefined; known = this.#known.get(key))
      try {
        return await known
      } catch (error) {
        signal.throwIfAborted()
        if (error instanceof ClosedbookError && error.blame !== 'infra') throw error
        if (this.#known.get(key) === known) this.#known.delete(key)
      }
    const reading = open().then((sandbox) =>
      readPristine({ sandbox, workdir, mode, baseCommit: task.baseCommit, signal }),
    )
    this.#known.set(key, reading)
    reading.catch(() => this.#known.delete(key))
    return reading
  }
}
