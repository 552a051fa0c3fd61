/**
 * Bundles: read-only trees that a caller brings for its leases (hidden tests, harness settings, recordings). A bundle
 * is a tar named by the sha256 of its bytes; it is verified before it counts, belongs to root, and is mounted
 * read-only. Entries that would leave the tree, and anything but files, directories and inner links, are refused.
 */
import { spawn } from 'node:child_process'
import { createHash, randomUUID } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { access, chmod, mkdir, readdir, rename, rm, stat, symlink, utimes } from 'node:fs/promises'
import path from 'node:path'
import { Transform, type Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import tar from 'tar-stream'
import { HostError, RequestError } from '../errors.ts'

const limitBytes = 2 * 1024 ** 3

export class Bundles {
  readonly directory: string
  readonly #used = new Map<string, number>()
  readonly #making = new Map<string, Promise<void>>()

  private constructor(directory: string) {
    this.directory = directory
  }

  static async open(directory: string): Promise<Bundles> {
    await mkdir(directory, { recursive: true, mode: 0o711 })
    for (const name of await readdir(directory))
      if (!/^[0-9a-f]{64}$/.test(name))
        await rm(path.join(directory, name), { recursive: true, force: true })
    return new Bundles(directory)
  }

  pathOf(bundle: string): string {
    return path.join(this.directory, bundle)
  }

  async put(bundle: string, body: Readable, options: { signal?: AbortSignal } = {}): Promise<void> {
    if (await this.#touched(bundle)) {
      body.resume()
      return
    }
    const temporary = path.join(this.directory, `incoming-${randomUUID()}`)
    try {
      await mkdir(temporary, { mode: 0o755 })
      const digest = await extract(body, temporary, options)
      if (digest !== bundle)
        throw new RequestError(
          'bad_request',
          'caller',
          `the bundle's bytes have sha256 ${digest}, not ${bundle}; send it again`,
        )
      await rename(temporary, this.pathOf(bundle)).catch(async (error: unknown) => {
        if (!(await this.#has(bundle))) throw error
      })
    } finally {
      await rm(temporary, { recursive: true, force: true })
    }
  }

  /**
   * The file system of an image as a bundle, for a harness that runs inside another image's container: its name follows
   * from the image's id. Made once; `exportTar` is asked only when it isn't there.
   */
  async putImage(imageId: string, exportTar: () => Promise<Readable>): Promise<string> {
    const bundle = createHash('sha256').update(`image ${imageId}`).digest('hex')
    let making = this.#making.get(bundle)
    if (making === undefined) {
      making = this.#putImage(bundle, exportTar).finally(() => this.#making.delete(bundle))
      this.#making.set(bundle, making)
    }
    await making
    return bundle
  }

  async #putImage(bundle: string, exportTar: () => Promise<Readable>): Promise<void> {
    if (await this.#touched(bundle)) return
    const temporary = path.join(this.directory, `incoming-${randomUUID()}`)
    try {
      await mkdir(temporary, { mode: 0o755 })
      await extractImage(await exportTar(), temporary)
      await rename(temporary, this.pathOf(bundle))
    } finally {
      await rm(temporary, { recursive: true, force: true })
    }
  }

  /** Holds bundles for a lease; unknown ones are the caller's mistake. */
  async use(bundles: readonly string[]): Promise<AsyncDisposable> {
    for (const bundle of bundles)
      if (!(await this.#has(bundle)))
        throw new RequestError(
          'bad_request',
          'caller',
          `no bundle ${bundle} here; PUT /v1/bundles/${bundle} first`,
        )
    for (const bundle of bundles) this.#used.set(bundle, (this.#used.get(bundle) ?? 0) + 1)
    return {
      [Symbol.asyncDispose]: async () => {
        for (const bundle of bundles) this.#used.set(bundle, (this.#used.get(bundle) ?? 1) - 1)
      },
    }
  }

  async remove(bundle: string): Promise<void> {
    if ((this.#used.get(bundle) ?? 0) > 0) return
    await rm(this.pathOf(bundle), { recursive: true, force: true })
  }

  /** Forgets what nobody has brought or mounted for so long: callers that died could not. */
  async sweep(unusedMs: number): Promise<void> {
    for (const bundle of await readdir(this.directory)) {
      if ((this.#used.get(bundle) ?? 0) > 0) continue
      const facts = await stat(this.pathOf(bundle)).catch(() => null)
      if (facts !== null && Date.now() - facts.mtimeMs > unusedMs) await this.remove(bundle)
    }
  }

  /** Whether it is there; if so, it is young again for the sweep. */
  async #touched(bundle: string): Promise<boolean> {
    if (!(await this.#has(bundle))) return false
    const now = new Date()
    await utimes(this.pathOf(bundle), now, now)
    return true
  }

  async #has(bundle: string): Promise<boolean> {
    return access(this.pathOf(bundle)).then(
      () => true,
      () => false,
    )
  }
}

/** By tar, since links and modes of an image stay as they are; it is the operator's image, and devices stay out. */
async function extractImage(body: Readable, root: string): Promise<void> {
  const child = spawn('tar', ['-x', '--no-same-owner', '--exclude=dev', '-C', root], {
    stdio: ['pipe', 'ignore', 'pipe'],
  })
  const complaint: Buffer[] = []
  child.stderr.on('data', (chunk: Buffer) => complaint.push(chunk))
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  await Promise.all([pipeline(body, child.stdin), ended])
  if ((await ended) !== 0)
    throw new HostError(
      'disk_full',
      'infra',
      `an image could not be unpacked: ${Buffer.concat(complaint).toString().trim().slice(0, 500)}`,
    )
}

/** Extracts into `root`; resolves with the sha256 of the tar's bytes. */
async function extract(
  body: Readable,
  root: string,
  options: { signal?: AbortSignal },
): Promise<string> {
  const hash = createHash('sha256')
  let size = 0
  const tee = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk)
      size += chunk.length
      if (size > limitBytes)
        done(
          new RequestError('too_large', 'caller', `a bundle may have ${limitBytes} bytes at most`),
        )
      else done(null, chunk)
    },
  })
  const entries = tar.extract()
  const copying = pipeline(body, tee, entries, options)
  copying.catch(() => {})
  const directories: string[] = []
  const links = new Set<string>()
  for await (const entry of entries) {
    const { name, type, linkname, mode } = entry.header
    const target = inside(root, name)
    refuseLinks(links, target, name)
    if (type === 'directory') {
      await mkdir(target, { recursive: true, mode: 0o755 })
      directories.push(target)
      entry.resume()
    } else if (type === 'file') {
      await mkdir(path.dirname(target), { recursive: true, mode: 0o755 })
      const executable = ((mode ?? 0) & 0o111) !== 0
      await pipeline(
        entry,
        createWriteStream(target, { flags: 'wx', mode: executable ? 0o755 : 0o644 }),
      )
    } else if (type === 'symlink') {
      inside(root, path.join(path.dirname(name), linkname ?? ''))
      if (path.isAbsolute(linkname ?? '')) throw outsideError(name)
      await mkdir(path.dirname(target), { recursive: true, mode: 0o755 })
      await symlink(linkname ?? '', target)
      links.add(target)
      entry.resume()
    } else {
      throw new RequestError(
        'bad_request',
        'caller',
        `bundle entry ${JSON.stringify(name)} is a ${type ?? 'unknown entry'}; files, directories and links only`,
      )
    }
  }
  await copying
  for (const directory of directories) await chmod(directory, 0o755)
  return hash.digest('hex')
}

const outsideError = (name: string): RequestError =>
  new RequestError(
    'bad_request',
    'caller',
    `bundle entry ${JSON.stringify(name)} would leave its tree`,
  )

/** Nothing is written through a link of the bundle's own: where that leads is not what its name says. */
function refuseLinks(links: ReadonlySet<string>, target: string, name: string): void {
  for (let place = target; place !== path.dirname(place); place = path.dirname(place))
    if (links.has(place))
      throw new RequestError(
        'bad_request',
        'caller',
        `bundle entry ${JSON.stringify(name)} would be written through a link`,
      )
}

function inside(root: string, name: string): string {
  const target = path.resolve(root, `./${name}`)
  if (target !== root && !target.startsWith(`${root}${path.sep}`)) throw outsideError(name)
  return target
}
