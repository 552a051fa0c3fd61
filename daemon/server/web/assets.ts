/**
 * The dashboard's files as they are served: our TypeScript with its types stripped, packages from their own builds.
 * Each is made once, at its first request, and kept with its digest and a compressed copy.
 */
import { createHash } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { stripTypeScriptTypes } from 'node:module'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { vendored, withPaths } from './vendored.ts'

const webDirectory = fileURLToPath(new URL('../../web', import.meta.url))
/** Of daemon/protocol/, what needs no Node: the browser uses the same code as we do. */
const sharedModules = ['board-life.ts', 'pty-frames.ts'] as const
const protocolDirectory = fileURLToPath(new URL('../../protocol', import.meta.url))

export interface Asset {
  readonly type: string
  readonly etag: string
  readonly plain: Buffer
  readonly gzip: Buffer
}

interface Source {
  readonly type: string
  readonly read: () => Promise<string>
}

export class Assets {
  readonly #sources = new Map<string, Source>()
  readonly #made = new Map<string, Promise<Asset>>()

  constructor() {
    const text = (file: string, type: string): Source => ({
      type,
      read: () => readFile(file, 'utf8'),
    })
    const stripped = (file: string): Source => ({
      type: 'text/javascript',
      read: async () => withPaths(stripTypeScriptTypes(await readFile(file, 'utf8'))),
    })
    this.#sources.set('/index.html', text(path.join(webDirectory, 'index.html'), 'text/html'))
    for (const name of readdirSync(webDirectory)) {
      const file = path.join(webDirectory, name)
      if (/\.(ts|js)$/.test(name) && !name.endsWith('.d.ts'))
        this.#sources.set(`/app/${name}`, stripped(file))
      if (name.endsWith('.css')) this.#sources.set(`/app/${name}`, text(file, 'text/css'))
      if (name.endsWith('.svg')) this.#sources.set(`/app/${name}`, text(file, 'image/svg+xml'))
    }
    for (const name of sharedModules)
      this.#sources.set(`/protocol/${name}`, stripped(path.join(protocolDirectory, name)))
    for (const { path: at, type, read } of vendored) this.#sources.set(at, { type, read })
  }

  get paths(): readonly string[] {
    return [...this.#sources.keys()]
  }

  /** Throws for a path that is none of `paths`. */
  async get(at: string): Promise<Asset> {
    const made = this.#made.get(at) ?? this.#make(at)
    this.#made.set(at, made)
    // one that failed is tried again
    made.catch(() => this.#made.delete(at))
    return made
  }

  async #make(at: string): Promise<Asset> {
    const source = this.#sources.get(at)
    if (source === undefined) throw new RangeError(`no asset ${at}`)
    const plain = Buffer.from(await source.read())
    const etag = `"${createHash('sha256').update(plain).digest('base64url').slice(0, 22)}"`
    return {
      type: `${source.type}; charset=utf-8`,
      etag,
      plain,
      gzip: await promisify(gzip)(plain),
    }
  }
}
