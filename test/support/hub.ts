/**
 * A stand-in Hub on loopback that speaks the real one's protocol: large files by an absolute redirect to a host of their
 * own (127.0.0.2, signed), small ones by a relative 307, trees in pages with an absolute Link, Xet hints wherever the
 * real one puts them, errors with their codes. It keeps what reached it, and can be told to misbehave.
 */
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'

/** Bytes by position, so that a file of any size costs nothing to keep. */
export interface Content {
  readonly size: number
  read(from: number, to: number): Buffer
}

export const bytes = (data: string | Buffer): Content => {
  const whole = Buffer.from(data)
  return { size: whole.length, read: (from, to) => whole.subarray(from, to) }
}

/** Repeats a random block whose length divides no sensible offset, so that a piece from elsewhere is noticed. */
export function large(size: number): Content {
  const period = 1_048_583
  const block = randomBytes(Math.min(period, Math.max(size, 1)))
  const twice = Buffer.concat([block, block])
  return {
    size,
    read: (from, to) => {
      const parts: Buffer[] = []
      for (let at = from; at < to;) {
        const offset = at % period
        const length = Math.min(to - at, period)
        parts.push(twice.subarray(offset, offset + length))
        at += length
      }
      return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts)
    },
  }
}

export interface StandInFile {
  readonly content: Content
  readonly lfs: boolean
  /** Git's blob id of the file, or of its LFS pointer. */
  readonly oid: string
  readonly sha256: string
}

export interface StandInRepo {
  readonly files: ReadonlyMap<string, StandInFile>
  /** Branches and tags. */
  readonly refs: Map<string, string>
  gated: boolean
}

export interface Request {
  readonly method: string
  readonly url: string
  readonly headers: http.IncomingHttpHeaders
}

/** What the file host does to one request, before its own answer. */
export type Trouble =
  /** The connection ends after so many bytes of the body. */
  | { readonly kind: 'cut'; readonly after: number }
  /** No further byte after so many until `release`. */
  | { readonly kind: 'hold'; readonly after: number; readonly release: Promise<void> }
  | {
      readonly kind: 'status'
      readonly status: number
      readonly headers?: http.OutgoingHttpHeaders
    }
  | { readonly kind: 'corrupt' }
  | { readonly kind: 'ignore-range' }
  | { readonly kind: 'redirect'; readonly location: string }

const fileHost = '127.0.0.2'
const pieceBytes = 256 * 1024

export class StandInHub implements AsyncDisposable {
  readonly requests: Request[] = []
  readonly fileRequests: Request[] = []
  /** Taken one for each request to the file host that gets as far. */
  readonly troubles: Trouble[] = []
  readonly repos = new Map<string, StandInRepo>()
  /** Old names of repositories. */
  readonly renamed = new Map<string, string>()
  pageSize = 1000
  /** Statuses for the next requests to the Hub itself. */
  readonly faults: { readonly status: number; readonly headers?: http.OutgoingHttpHeaders }[] = []
  bytesSent = 0
  readonly #hub: http.Server
  readonly #files: http.Server

  private constructor() {
    this.#hub = http.createServer((request, response) => this.#answer(request, response))
    this.#files = http.createServer((request, response) => void this.#serve(request, response))
  }

  static async open(port = 0): Promise<StandInHub> {
    const hub = new StandInHub()
    hub.#hub.listen(port, '127.0.0.1')
    hub.#files.listen(0, fileHost)
    await Promise.all([once(hub.#hub, 'listening'), once(hub.#files, 'listening')])
    return hub
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#hub.address() as AddressInfo).port}`
  }

  get fileHost(): string {
    return `${fileHost}:${(this.#files.address() as AddressInfo).port}`
  }

  /** Adds a repository with one commit, which is also `main`; the commit's id. */
  add(
    id: string,
    files: Readonly<Record<string, Content | string>>,
    { gated = false } = {},
  ): string {
    const made = new Map<string, StandInFile>()
    for (const [path, data] of Object.entries(files)) {
      const content = typeof data === 'string' ? bytes(data) : data
      made.set(path, fileOf(content, isLarge(path)))
    }
    const commit = createHash('sha1')
      .update(JSON.stringify([id, [...made].map(([path, { oid }]) => [path, oid])]))
      .digest('hex')
    const refs = new Map([
      ['main', commit],
      [commit, commit],
    ])
    this.repos.set(id, { files: made, refs, gated })
    return commit
  }

  file(id: string, path: string): StandInFile {
    const file = this.repos.get(id)?.files.get(path)
    if (file === undefined) throw new Error(`no ${path} in ${id}`)
    return file
  }

  #answer(request: http.IncomingMessage, response: http.ServerResponse): void {
    const { method = '', url = '', headers } = request
    this.requests.push({ method, url, headers })
    const fault = this.faults.shift()
    if (fault !== undefined) {
      response.writeHead(fault.status, { 'content-type': 'text/plain', ...fault.headers })
      response.end('out of order')
      return
    }
    const { pathname, searchParams } = new URL(url, this.endpoint)
    const parts = pathname.slice(1).split('/').map(decodeURIComponent)
    const api = parts[0] === 'api'
    if (parts[1] === 'resolve-cache') {
      const [repoOwner = '', repoName = '', sha = '', ...rest] = parts.slice(3)
      return this.#small(response, request, `${repoOwner}/${repoName}`, sha, rest.join('/'))
    }
    const [owner = '', name = '', verb = '', revision = '', ...path] = api ? parts.slice(2) : parts
    const id = `${owner}/${name}`
    const target = this.renamed.get(id)
    if (target !== undefined) {
      response.writeHead(307, { location: url.replace(id, target) }).end()
      return
    }
    const repo = this.repos.get(id)
    if (repo === undefined) return failure(response, 401, 'RepoNotFound', 'Repository not found')
    const commit = revision === '' ? repo.refs.get('main') : repo.refs.get(revision)
    if (commit === undefined)
      return failure(response, 404, 'RevisionNotFound', `Invalid rev id: ${revision}`)
    if (api && (verb === '' || verb === 'revision')) return info(response, id, commit, repo)
    if (api && verb === 'tree') return this.#tree(response, url, searchParams, repo)
    if (!api && verb === 'resolve')
      return this.#resolve(response, { id, commit, path: path.join('/') }, repo)
    failure(response, 404, '', 'Not found')
  }

  #tree(
    response: http.ServerResponse,
    url: string,
    query: URLSearchParams,
    repo: StandInRepo,
  ): void {
    const entries: object[] = []
    const folders = new Set<string>()
    for (const [path, file] of repo.files) {
      for (let at = path.indexOf('/'); at > 0; at = path.indexOf('/', at + 1)) {
        const folder = path.slice(0, at)
        if (!folders.has(folder))
          entries.push({ type: 'directory', oid: gitOid(folder), size: 0, path: folder })
        folders.add(folder)
      }
      entries.push(treeEntry(path, file))
    }
    const from = Number(query.get('cursor') ?? '0')
    const next = from + this.pageSize
    const link = new URL(url, 'https://huggingface.co')
    link.searchParams.set('cursor', String(next))
    const headers = next < entries.length ? { link: `<${link.href}>; rel="next"` } : {}
    json(response, entries.slice(from, next), headers)
  }

  #resolve(
    response: http.ServerResponse,
    { id, commit, path }: { id: string; commit: string; path: string },
    repo: StandInRepo,
  ): void {
    const file = repo.files.get(path)
    if (file === undefined)
      return failure(response, 404, 'EntryNotFound', 'Entry not found', { 'x-repo-commit': commit })
    if (repo.gated)
      return failure(
        response,
        403,
        'GatedRepo',
        `Access to model ${id} is restricted and you are not in the authorized list. Visit https://huggingface.co/${id} to ask for access.`,
      )
    const common = { 'x-repo-commit': commit, 'accept-ranges': 'bytes' }
    if (!file.lfs) {
      const etag = encodeURIComponent(`"${file.oid}"`)
      const location = `/api/resolve-cache/models/${id}/${commit}/${encodePath(path)}?etag=${etag}`
      response.writeHead(307, { ...common, location, etag: `"${file.oid}"` }).end()
      return
    }
    const xet = file.sha256.replaceAll('a', 'b')
    response.writeHead(302, {
      ...common,
      location: `http://${this.fileHost}/xet-bridge-us/${file.oid}/${file.sha256}?X-Amz-Signature=${'0'.repeat(64)}&repo=${id}`,
      'x-linked-etag': `"${file.sha256}"`,
      'x-linked-size': file.content.size,
      'x-xet-hash': xet,
      'x-xet-refresh-route': `/api/models/${id}/xet-read-token/${commit}`,
      link: `<https://huggingface.co/api/models/${id}/xet-read-token/${commit}>; rel="xet-auth", <https://cas-server.xethub.hf.co/v1/reconstructions/${xet}>; rel="xet-reconstruction-info"`,
    })
    response.end()
  }

  #small(
    response: http.ServerResponse,
    request: http.IncomingMessage,
    id: string,
    commit: string,
    path: string,
  ): void {
    const file = this.repos.get(id)?.files.get(path)
    if (file === undefined) return failure(response, 404, 'EntryNotFound', 'Entry not found')
    response.writeHead(200, {
      'content-length': file.content.size,
      'content-type': 'text/plain; charset=utf-8',
      etag: `"${file.oid}"`,
      'x-repo-commit': commit,
      'access-control-expose-headers': 'X-Repo-Commit,X-Linked-Size,X-Xet-Hash',
    })
    response.end(request.method === 'HEAD' ? '' : file.content.read(0, file.content.size))
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const { method = '', url = '', headers } = request
    this.fileRequests.push({ method, url, headers })
    const trouble = this.troubles.shift()
    const file = [...this.repos.values()]
      .flatMap(({ files }) => [...files.values()])
      .find(({ sha256 }) => url.includes(sha256))
    if (trouble?.kind === 'status' || file === undefined) {
      const { status = 404, headers: more = {} } = trouble?.kind === 'status' ? trouble : {}
      response.writeHead(status, more).end()
      return
    }
    if (trouble?.kind === 'redirect') {
      response.writeHead(302, { location: trouble.location }).end()
      return
    }
    const { size } = file.content
    const etag = `"s3-${file.sha256.slice(0, 16)}-3"`
    const range = /^bytes=(\d+)-$/.exec(headers.range ?? '')
    const same = headers['if-range'] === undefined || headers['if-range'] === etag
    const from = range !== null && same && trouble?.kind !== 'ignore-range' ? Number(range[1]) : 0
    response.writeHead(from > 0 ? 206 : 200, {
      etag,
      'content-length': size - from,
      ...(from > 0 ? { 'content-range': `bytes ${from}-${size - 1}/${size}` } : {}),
    })
    response.on('error', () => {})
    let sent = 0
    for (let at = from; at < size && !response.destroyed; at += pieceBytes) {
      const limit = trouble?.kind === 'cut' || trouble?.kind === 'hold' ? trouble.after : Infinity
      const end = Math.min(at + pieceBytes, size)
      const piece = Buffer.from(file.content.read(at, end))
      if (trouble?.kind === 'corrupt') piece.writeUInt8(piece.readUInt8(0) ^ 1, 0)
      if (sent + piece.length > limit) {
        const part = piece.subarray(0, Math.max(0, limit - sent))
        await written(response, part)
        this.bytesSent += part.length
        if (trouble?.kind === 'hold') await trouble.release
        if (trouble?.kind === 'cut') {
          response.destroy()
          return
        }
        await written(response, piece.subarray(part.length))
        this.bytesSent += piece.length - part.length
        sent = -Infinity
      } else {
        await written(response, piece)
        this.bytesSent += piece.length
        sent += piece.length
      }
    }
    response.end()
  }

  /** Ends what is open, as a machine that goes away. */
  dropConnections(): void {
    this.#hub.closeAllConnections()
    this.#files.closeAllConnections()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.dropConnections()
    await Promise.all(
      [this.#hub, this.#files].map(
        (server) => new Promise<void>((resolve) => server.close(() => resolve())),
      ),
    )
  }
}

const isLarge = (path: string): boolean => /\.(?:safetensors|bin|model|gguf)$/.test(path)

const encodePath = (path: string): string => path.split('/').map(encodeURIComponent).join('/')

const gitOid = (data: string | Buffer): string =>
  createHash('sha1')
    .update(`blob ${Buffer.byteLength(data)}\0`)
    .update(data)
    .digest('hex')

function fileOf(content: Content, lfs: boolean): StandInFile {
  const hash = createHash('sha256')
  for (let at = 0; at < content.size; at += pieceBytes)
    hash.update(content.read(at, Math.min(at + pieceBytes, content.size)))
  const sha256 = hash.digest('hex')
  const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${sha256}\nsize ${content.size}\n`
  const oid = gitOid(lfs ? pointer : content.read(0, content.size))
  return { content, lfs, oid, sha256 }
}

function treeEntry(path: string, { content, lfs, oid, sha256 }: StandInFile): object {
  const { size } = content
  if (!lfs) return { type: 'file', oid, size, path }
  return {
    type: 'file',
    oid,
    size,
    lfs: { oid: sha256, size, pointerSize: 134 },
    xetHash: sha256.replaceAll('a', 'b'),
    path,
  }
}

function info(response: http.ServerResponse, id: string, sha: string, repo: StandInRepo): void {
  json(response, {
    _id: '66a1b2c3d4e5f60718293a4b',
    id,
    modelId: id,
    sha,
    private: false,
    gated: repo.gated ? 'auto' : false,
    xetEnabled: true,
    downloads: 12_345,
    tags: ['transformers', 'safetensors'],
    siblings: [...repo.files.keys()].map((rfilename) => ({ rfilename })),
  })
}

function json(
  response: http.ServerResponse,
  value: unknown,
  headers: http.OutgoingHttpHeaders = {},
): void {
  response.writeHead(200, { 'content-type': 'application/json; charset=utf-8', ...headers })
  response.end(JSON.stringify(value))
}

function failure(
  response: http.ServerResponse,
  status: number,
  code: string,
  message: string,
  headers: http.OutgoingHttpHeaders = {},
): void {
  response.writeHead(status, {
    'content-type': 'application/json; charset=utf-8',
    'x-error-message': message,
    ...(code === '' ? {} : { 'x-error-code': code }),
    ...headers,
  })
  response.end(JSON.stringify({ error: message }))
}

function written(response: http.ServerResponse, piece: Buffer): Promise<void> {
  return new Promise((resolve) => {
    if (response.destroyed || piece.length === 0) resolve()
    else {
      response.once('close', resolve)
      response.write(piece, () => {
        response.removeListener('close', resolve)
        resolve()
      })
    }
  })
}
