/** A directory that is gone when the test is, and files in it. */
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

export class Scratch implements AsyncDisposable {
  readonly path: string

  private constructor(path: string) {
    this.path = path
  }

  static async make(): Promise<Scratch> {
    return new Scratch(await mkdtemp(join(tmpdir(), 'closedbook-test-')))
  }

  async write(name: string, content: string | Uint8Array, mode?: number): Promise<string> {
    const path = join(this.path, name)
    await mkdir(dirname(path), { recursive: true })
    await writeFile(path, content)
    if (mode !== undefined) await chmod(path, mode)
    return path
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true })
  }
}

/** What `make` throws; fails the test when it doesn't. */
export async function failureOf(make: () => unknown): Promise<Error> {
  try {
    await make()
  } catch (error) {
    if (error instanceof Error) return error
    throw new Error(`thrown, but no Error: ${String(error)}`, { cause: error })
  }
  throw new Error('nothing was thrown')
}
