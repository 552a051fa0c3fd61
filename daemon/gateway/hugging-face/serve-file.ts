/**
 * One file of a pinned repository: its head from the tree alone, its bytes from the host's cache, whole or in part. The
 * ETag is the digest, bare of quotes within: clients make a file name of it without looking.
 */
import type { IncomingMessage } from 'node:http'
import type { Pin } from '../../../policy/hugging-face.ts'
import type { ArtifactCache } from '../artifact-cache/artifact-cache.ts'
import type { Origin } from '../artifact-cache/artifact.ts'
import type { ObjectName } from '../artifact-cache/object-name.ts'
import type { Hub } from './hub.ts'
import { parseRange } from './range.ts'
import type { Reply } from './reply.ts'
import { sendFile } from './send-file.ts'
import type { Slots } from './slots.ts'
import type { TreeFile } from './tree.ts'

export interface FileDeps {
  readonly hub: Hub
  readonly cache: ArtifactCache
  /** Fetches from the Hub that this lease may have under way. */
  readonly slots: Slots
  /** False where the lease has had all that the policy lets it have of the repository. */
  readonly reserve: (pin: Pin, bytes: number) => boolean
  /** Resolves when the decision is on record. */
  readonly flushed: () => Promise<void>
}

export const objectOf = ({ oid, size, lfs }: TreeFile): ObjectName =>
  lfs
    ? { algorithm: 'sha256', hex: lfs.oid, size: lfs.size }
    : { algorithm: 'git-sha1', hex: oid, size }

export type Served = { readonly origin: Origin | null } | { readonly refused: 'limit_bytes' }

/** The file is in the pin's tree. Throws before the head is sent where the file can't be had. */
export async function serveFile(
  file: TreeFile,
  pin: Pin,
  request: IncomingMessage,
  reply: Reply,
  deps: FileDeps,
  signal: AbortSignal,
): Promise<Served> {
  const at = { repo: pin.entry.repo, commit: pin.commit }
  const object = objectOf(file)
  const etag = `"${object.hex}"`
  const headers = {
    'content-type': 'application/octet-stream',
    'accept-ranges': 'bytes',
    'cache-control': 'no-transform',
    etag,
    'x-repo-commit': pin.commit,
    'x-linked-etag': etag,
    'x-linked-size': object.size,
  }
  if (reply.head) {
    if (!deps.cache.has(object)) await deps.hub.requireAccess(at, file.path, signal)
    await deps.flushed()
    reply.begin(200, { ...headers, 'content-length': object.size })
    return { origin: null }
  }
  const range = parseRange(
    { range: request.headers.range, ifRange: request.headers['if-range'] as string | undefined },
    { size: object.size, etag },
  )
  if (range.kind === 'unsatisfiable') {
    await deps.flushed()
    reply.empty(416, { ...headers, 'content-range': `bytes */${object.size}` })
    return { origin: null }
  }
  const { start, end } = range.kind === 'part' ? range : { start: 0, end: object.size }
  if (!deps.reserve(pin, end - start)) return { refused: 'limit_bytes' }
  using _slot = deps.cache.has(object) ? null : await deps.slots.take(signal)
  await using artifact = await deps.cache.open(object, deps.hub.source(at, file))
  // The first byte is there, or it is known why there is none: until here an error has a status of its own.
  if (start < end) await artifact.available(start, { signal })
  await deps.flushed()
  reply.begin(range.kind === 'part' ? 206 : 200, {
    ...headers,
    'content-length': end - start,
    ...(range.kind === 'part'
      ? { 'content-range': `bytes ${start}-${end - 1}/${object.size}` }
      : {}),
  })
  await sendFile(artifact, reply.response, {
    start,
    end,
    signal,
    onBytes: (bytes) => (reply.bytes += bytes),
  })
  return { origin: artifact.origin }
}
