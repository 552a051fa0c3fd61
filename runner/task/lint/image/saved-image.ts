/**
 * The tar that `docker save` writes, read once and as it comes: the image's configuration, and every file of every
 * layer, nothing held but what a visitor keeps. Layers may be plain, gzip or zstd, by their old names or as OCI blobs;
 * they may come before the manifest that orders them.
 */
import { Readable } from 'node:stream'
import { createGunzip, createZstdDecompress } from 'node:zlib'
import { z } from 'zod'
import { RunnerError } from '../../../errors.ts'
import { readTar, type TarHeader } from '../../../trial/tar-reader.ts'
import { zodMessage } from '../../../../daemon/protocol/zod-message.ts'

export interface LayerEntry {
  /** The layer's entry in the archive: its name until the manifest is known. */
  readonly layer: string
  readonly header: TarHeader
  /** The bytes of a regular file; whoever takes none leaves them. */
  readonly bytes: AsyncIterable<Buffer>
}

export interface SavedImage {
  readonly config: ImageConfig
  /** Entry names from the lowest layer up. */
  readonly layers: readonly string[]
}

const configSchema = z.looseObject({
  config: z
    .looseObject({
      Env: z.array(z.string()).nullish(),
      Labels: z.record(z.string(), z.string()).nullish(),
    })
    .nullish(),
  history: z
    .array(z.looseObject({ created_by: z.string().optional(), comment: z.string().optional() }))
    .nullish(),
})
export type ImageConfig = z.infer<typeof configSchema>

const manifestSchema = z
  .array(z.looseObject({ Config: z.string(), Layers: z.array(z.string()) }))
  .min(1)

const maxJsonBytes = 16 * 1024 * 1024

export async function readSavedImage(
  tar: Readable,
  visit: (entry: LayerEntry) => Promise<void>,
): Promise<SavedImage> {
  const documents = new Map<string, Buffer>()
  const links = new Map<string, string>()
  const outer = new Entries(tar)
  for (let header = await outer.next(); header !== null; header = await outer.next()) {
    if (header.kind === 'symlink' || header.kind === 'hardlink')
      links.set(header.path, resolveLink(header))
    if (header.kind !== 'file' || header.size === 0) continue
    const [head, bytes] = await peek(outer.bytes())
    if (isTar(head) || isGzip(head) || isZstd(head)) {
      const inner = new Entries(unpacked(head, bytes))
      for (let entry = await inner.next(); entry !== null; entry = await inner.next())
        await visit({ layer: header.path, header: entry, bytes: inner.bytes() })
    } else if (
      header.size <= maxJsonBytes &&
      head[0] !== undefined &&
      '{['.includes(String.fromCharCode(head[0]))
    ) {
      const parts: Buffer[] = []
      for await (const part of bytes) parts.push(part)
      documents.set(header.path, Buffer.concat(parts))
    }
  }
  const manifest = parsed(documents, 'manifest.json', manifestSchema)[0]
  if (manifest === undefined) throw broken('it has no manifest')
  return {
    config: parsed(documents, manifest.Config, configSchema),
    layers: manifest.Layers.map((name) => links.get(name) ?? name),
  }
}

/** A tar as headers, each with its bytes, which need not be read. */
class Entries {
  readonly #items: AsyncIterator<TarHeader | Buffer>
  #ahead: TarHeader | null = null

  constructor(tar: AsyncIterable<Buffer>) {
    const stream = tar instanceof Readable ? tar : Readable.from(tar, { objectMode: true })
    this.#items = readTar(stream)[Symbol.asyncIterator]()
  }

  async next(): Promise<TarHeader | null> {
    if (this.#ahead === null) for await (const _rest of this.bytes());
    const header = this.#ahead
    this.#ahead = null
    return header
  }

  /** What is left of the bytes of the header that `next` gave last. */
  bytes(): AsyncIterable<Buffer> {
    const items = this.#items
    const keep = (header: TarHeader): void => void (this.#ahead = header)
    const waiting = (): boolean => this.#ahead !== null
    return {
      async *[Symbol.asyncIterator]() {
        while (!waiting()) {
          const item = await items.next()
          if (item.done === true) return
          if (!Buffer.isBuffer(item.value)) return keep(item.value)
          yield item.value
        }
      },
    }
  }
}

/** The first bytes (a whole block where there is one), and all bytes again. */
export async function peek(
  bytes: AsyncIterable<Buffer>,
  length = 8192,
): Promise<[Buffer, AsyncIterable<Buffer>]> {
  const iterator = bytes[Symbol.asyncIterator]()
  const parts: Buffer[] = []
  let size = 0
  while (size < length) {
    const item = await iterator.next()
    if (item.done === true) break
    parts.push(item.value)
    size += item.value.length
  }
  const head = Buffer.concat(parts)
  return [
    head,
    {
      async *[Symbol.asyncIterator]() {
        if (head.length > 0) yield head
        for (let item = await iterator.next(); item.done !== true; item = await iterator.next())
          yield item.value
      },
    },
  ]
}

export const isGzip = (head: Buffer): boolean => head[0] === 0x1f && head[1] === 0x8b
export const isZstd = (head: Buffer): boolean =>
  head.length >= 4 && head.readUInt32LE(0) === 0xfd2fb528
export const isTar = (head: Buffer): boolean =>
  head.length >= 512 && head.toString('latin1', 257, 262) === 'ustar'

/** Bytes after gzip or zstd, where they are packed so. A broken archive ends in an error of the iteration. */
export function unpacked(head: Buffer, bytes: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
  const unpack = isGzip(head) ? createGunzip() : isZstd(head) ? createZstdDecompress() : null
  if (unpack === null) return bytes
  const source = Readable.from(bytes, { objectMode: true })
  source.on('error', (error) => unpack.destroy(error))
  unpack.on('close', () => source.destroy())
  return source.pipe(unpack)
}

function resolveLink({ path, target }: TarHeader): string {
  const parts = [...path.split('/').slice(0, -1), ...target.split('/')]
  const kept: string[] = []
  for (const part of parts)
    if (part === '..') kept.pop()
    else if (part !== '.' && part !== '') kept.push(part)
  return kept.join('/')
}

function parsed<T>(documents: ReadonlyMap<string, Buffer>, name: string, schema: z.ZodType<T>): T {
  const bytes = documents.get(name)
  if (bytes === undefined) throw broken(`it has no ${name}`)
  const result = schema.safeParse(JSON.parse(bytes.toString('utf8')))
  if (!result.success) throw broken(`its ${name} is odd: ${zodMessage(result.error)}`)
  return result.data
}

const broken = (why: string): RunnerError =>
  new RunnerError(
    'transfer_failed',
    'infra',
    `the image that the engine saved can't be read: ${why}`,
  )
