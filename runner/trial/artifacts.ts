/**
 * `verify = "artifacts"`: nothing but declared paths leaves the frozen sandbox, each kept as a tar of its own beside the
 * result and laid out at its own path in the verifier. Set-id bits, owners, devices and pipes stay behind, and are
 * named. A path that isn't there is said, never skipped in silence.
 */
import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { join, posix } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { PathKind } from '../../daemon/protocol/client.ts'
import type { AgentFailure } from './collect.ts'
import { isPathMissing, isRefused } from './engine-answer.ts'
import { showPath, type BytePath } from './path-name.ts'
import type { Sandbox } from './sandbox.ts'
import { removeAll } from './remove-all.ts'
import { readTar, type TarHeader } from './tar-reader.ts'
import { tarEnd, tarHeader, tarPadding } from './tar-writer.ts'
import { signalOption } from './tree.ts'

export interface ArtifactSpec {
  /** A path in the sandbox; a relative one starts at the workdir. */
  readonly source: string
  /** Globs against the path inside it and against base names. */
  readonly exclude: readonly string[]
  /** Nothing is said when it isn't there. */
  readonly optional?: boolean
}

export interface Artifact {
  readonly source: string
  /** Where it lies, in the sandbox and in the verifier. */
  readonly path: string
  readonly kind: PathKind
  /** The tar on disk, with names from the root of the file system. */
  readonly file: string
  readonly sha256: string
  readonly bytes: number
  readonly entries: number
}

export type ArtifactOutcome =
  | {
      readonly ok: true
      readonly artifacts: readonly Artifact[]
      readonly missing: readonly string[]
      readonly skipped: readonly { readonly path: string; readonly why: string }[]
    }
  | { readonly ok: false; readonly failure: AgentFailure }

export async function collectArtifacts(options: {
  agent: Sandbox
  artifacts: readonly ArtifactSpec[]
  workdir?: string
  /** Where the tars are written; it exists. */
  directory: string
  maxBytes?: number
  signal?: AbortSignal
}): Promise<ArtifactOutcome> {
  const { agent, directory, signal, maxBytes = 1024 ** 3 } = options
  const artifacts: Artifact[] = []
  const missing: string[] = []
  const skipped: { path: string; why: string }[] = []
  let total = 0
  for (const [index, spec] of options.artifacts.entries()) {
    const source = posix.resolve('/', options.workdir ?? '/', spec.source)
    const archive = await agent.readArchive(source, signalOption(signal)).catch(noPath)
    if (archive === null) {
      if (spec.optional !== true) missing.push(spec.source)
      continue
    }
    const file = join(directory, `artifact-${index}.tar`)
    const hash = createHash('sha256')
    const facts = { bytes: 0, entries: 0 }
    const left = maxBytes - total
    const rewritten = cleanTar(archive.tar, { ...spec, source }, skipped, facts, left)
    await pipeline(
      Readable.from(hashed(rewritten, hash), { objectMode: false }),
      createWriteStream(file),
      signalOption(signal),
    )
    total += facts.bytes
    if (facts.bytes > left)
      return {
        ok: false,
        failure: {
          code: 'artifact_too_large',
          message: `the declared artifacts hold more than ${maxBytes} bytes, at ${spec.source}`,
        },
      }
    artifacts.push({
      source: spec.source,
      path: source,
      kind: archive.kind,
      file,
      sha256: hash.digest('hex'),
      ...facts,
    })
  }
  return { ok: true, artifacts, missing, skipped }
}

const noPath = (error: unknown): null => {
  // Refused: what should be a directory on the way is a file, or links lead in a circle.
  if (isPathMissing(error) || isRefused(error)) return null
  throw error
}

async function* hashed(
  chunks: AsyncIterable<Buffer>,
  hash: { update(bytes: Buffer): unknown },
): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    hash.update(chunk)
    yield chunk
  }
}

async function* cleanTar(
  tar: Readable,
  spec: ArtifactSpec,
  skipped: { path: string; why: string }[],
  facts: { bytes: number; entries: number },
  limitBytes: number,
): AsyncGenerator<Buffer> {
  const root = Buffer.from(spec.source.slice(1), 'utf8').toString('latin1')
  let first: BytePath | undefined
  let open: TarHeader | undefined
  for await (const item of readTar(tar)) {
    if (Buffer.isBuffer(item)) {
      if (open !== undefined) yield item
      continue
    }
    if (open !== undefined) yield tarPadding(open.size)
    open = undefined
    first ??= item.path
    const inner = item.path.slice(first.length + 1)
    const path = inner === '' ? root : `${root}/${inner}`
    const shown = showPath(path)
    if (isExcluded(inner, spec.exclude)) continue
    const linked = item.target.slice(first.length + 1)
    facts.bytes += item.size
    if (facts.bytes > limitBytes) return
    if (item.kind === 'file' || item.kind === 'directory' || item.kind === 'symlink') {
      facts.entries += 1
      yield tarHeader({ ...item, path, kind: item.kind })
      if (item.kind === 'file') open = item
    } else if (item.kind === 'hardlink' && !isExcluded(linked, spec.exclude)) {
      facts.entries += 1
      yield tarHeader({ path, kind: 'hardlink', mode: item.mode, target: `${root}/${linked}` })
    } else {
      skipped.push({ path: `/${shown}`, why: `a ${item.kind}` })
    }
  }
  if (open !== undefined) yield tarPadding(open.size)
  yield tarEnd()
}

function isExcluded(inner: BytePath, globs: readonly string[]): boolean {
  if (inner === '' || globs.length === 0) return false
  const names = inner.split('/')
  return names.some((name, index) => {
    const path = names.slice(0, index + 1).join('/')
    return globs.some((glob) => posix.matchesGlob(path, glob) || posix.matchesGlob(name, glob))
  })
}

/** A directory takes the place of the image's own, as in Harbor; what the agent removed from it stays away. */
export async function placeArtifacts(options: {
  sandbox: Sandbox
  artifacts: readonly Artifact[]
  signal?: AbortSignal
}): Promise<void> {
  await removeAll(
    options.sandbox,
    options.artifacts
      .filter(({ kind, path }) => kind === 'directory' && path !== '/')
      .map(({ path }) => path),
    options.signal,
  )
  for (const { file } of options.artifacts)
    await options.sandbox.writeArchive('/', createReadStream(file), signalOption(options.signal))
}
