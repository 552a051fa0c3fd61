/**
 * `verify = "snapshot"` of a whole container: what the agent changed anywhere in it, as one tar beside the result, and
 * laid out again in a fresh container of the same image. Owners, modes and times are kept; set-id bits, pipes, sockets and
 * devices stay behind and are named. Processes are never part of it. A transfer that breaks is an infra error.
 */
import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { isDeepStrictEqual } from 'node:util'
import type { FileChange } from '../../daemon/protocol/lease.ts'
import type { AgentFailure } from './collect.ts'
import { isPathMissing, isRefused } from './engine-answer.ts'
import { showPath, type BytePath } from './path-name.ts'
import { removeAll } from './remove-all.ts'
import type { Sandbox } from './sandbox.ts'
import { planSnapshot, type SnapshotRead } from './snapshot-plan.ts'
import { readTar, type TarHeader } from './tar-reader.ts'
import { tarEnd, tarHeader, tarPadding } from './tar-writer.ts'
import { signalOption } from './tree.ts'

export interface Snapshot {
  /** The tar on disk, with names from the root of the file system. */
  readonly file: string
  readonly sha256: string
  readonly bytes: number
  readonly entries: number
  readonly deleted: readonly string[]
}

export type SnapshotOutcome =
  | {
      readonly ok: true
      readonly snapshot: Snapshot
      readonly skipped: readonly { readonly path: string; readonly why: string }[]
    }
  | { readonly ok: false; readonly failure: AgentFailure }

/** Why something of the agent's is missing that it may have been graded by. */
export const unreadable = "the engine can't read it"

export const snapshotLimits = { bytes: 1024 ** 3, entries: 500_000 }

const isEmpty = ({ entries, deleted }: Snapshot): boolean => entries === 0 && deleted.length === 0

interface SnapshotInput {
  readonly agent: Sandbox
  readonly changes: readonly FileChange[]
  /** Places in it that are not the agent's, such as mounts. */
  readonly own?: readonly string[]
  readonly limits?: typeof snapshotLimits
  readonly signal?: AbortSignal
}

/** What had changed in a container before the agent began, by content, owner, mode and time. */
export type Before = Pick<Snapshot, 'sha256' | 'deleted'>

/** Of a sandbox that is up and that no agent has seen; null where it holds too much. Nothing is kept of it but a digest. */
export async function snapshotBefore(input: SnapshotInput): Promise<Before | null> {
  const nowhere = new Writable({ write: (_bytes, _encoding, done) => done() })
  const outcome = await readInto(nowhere, '', input)
  if (!outcome.ok) return null
  const { sha256, deleted } = outcome.snapshot
  return { sha256, deleted }
}

/** `null`: nothing had. */
export const isChangedSince = (snapshot: Snapshot, before: Before | null): boolean =>
  before === null
    ? !isEmpty(snapshot)
    : snapshot.sha256 !== before.sha256 || !isDeepStrictEqual(snapshot.deleted, before.deleted)

/** `agent`: frozen. */
export const collectSnapshot = ({
  file,
  ...input
}: SnapshotInput & { readonly file: string }): Promise<SnapshotOutcome> =>
  readInto(createWriteStream(file, { flags: 'wx' }), file, input)

async function readInto(
  target: Writable,
  file: string,
  { agent, changes, own, signal, limits = snapshotLimits }: SnapshotInput,
): Promise<SnapshotOutcome> {
  const plan = planSnapshot(changes, own)
  const skipped = [...plan.skipped]
  const facts = { bytes: 0, entries: 0, over: false }
  const hash = createHash('sha256')
  async function* content(): AsyncGenerator<Buffer> {
    for (const path of plan.directories) yield* directoryAlone(agent, path, facts, signal)
    for (const read of plan.reads) {
      yield* entriesOf(agent, read, { facts, skipped, limits }, signal)
      if (facts.over) return
    }
    yield tarEnd()
  }
  async function* hashed(): AsyncGenerator<Buffer> {
    for await (const bytes of content()) {
      hash.update(bytes)
      yield bytes
    }
  }
  await pipeline(Readable.from(hashed(), { objectMode: false }), target, signalOption(signal))
  if (facts.over)
    return {
      ok: false,
      failure: {
        code: 'tree_too_large',
        message: `what changed in the container holds more than ${limits.bytes} bytes or ${limits.entries} entries`,
      },
    }
  const { bytes, entries } = facts
  const sha256 = hash.digest('hex')
  return { ok: true, snapshot: { file, sha256, bytes, entries, deleted: plan.deleted }, skipped }
}

interface Facts {
  bytes: number
  entries: number
  over: boolean
}

const owned = (header: TarHeader) => ({ uid: header.uid, gid: header.gid })

const rooted = (path: string): BytePath => Buffer.from(path.slice(1), 'utf8').toString('latin1')

/**
 * null where there is no such path, though it was listed: a link has taken the place of a directory on the way. An engine
 * that answers twice that it can't read a path has been shown something that the agent made; once may be a fault of its own.
 */
async function open(
  agent: Sandbox,
  path: string,
  signal: AbortSignal | undefined,
): Promise<Awaited<ReturnType<Sandbox['readArchive']>> | null> {
  const read = () => agent.readArchive(path, signalOption(signal))
  const unlessMissing = (error: unknown): null => {
    if (isPathMissing(error)) return null
    throw error
  }
  try {
    return await read().catch(unlessMissing)
  } catch (error) {
    if (!isRefused(error)) throw error
    return read().catch((second: unknown) => (isRefused(second) ? null : unlessMissing(second)))
  }
}

async function* directoryAlone(
  agent: Sandbox,
  path: string,
  facts: Facts,
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer> {
  const archive = await open(agent, path, signal)
  if (archive === null) return
  for await (const item of readTar(archive.tar)) {
    if (Buffer.isBuffer(item) || item.kind !== 'directory') break
    facts.entries += 1
    const { mode, time } = item
    yield tarHeader({ path: rooted(path), kind: 'directory', mode, time, owner: owned(item) })
    break
  }
  archive.tar.destroy()
}

async function* entriesOf(
  agent: Sandbox,
  { path: from, take }: SnapshotRead,
  {
    facts,
    skipped,
    limits,
  }: {
    facts: Facts
    skipped: { path: string; why: string }[]
    limits: typeof snapshotLimits
  },
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer> {
  const archive = await open(agent, from, signal)
  if (archive === null) {
    skipped.push({ path: from, why: unreadable })
    return
  }
  const depthOf = depths(take)
  const root = rooted(from)
  let first: BytePath | undefined
  let file: TarHeader | undefined
  for await (const item of readTar(archive.tar)) {
    if (Buffer.isBuffer(item)) {
      if (file !== undefined) yield item
      continue
    }
    if (file !== undefined) yield tarPadding(file.size)
    file = undefined
    first ??= item.path
    const inner = item.path.slice(first.length + 1)
    if (!depthOf(inner)) continue
    facts.bytes += item.size
    facts.entries += 1
    facts.over = facts.bytes > limits.bytes || facts.entries > limits.entries
    if (facts.over) return
    const path = inner === '' ? root : `${root}/${inner}`
    const owner = owned(item)
    if (item.kind === 'file' || item.kind === 'directory' || item.kind === 'symlink') {
      yield tarHeader({ ...item, path, kind: item.kind, owner })
      if (item.kind === 'file') file = item
    } else if (item.kind === 'hardlink') {
      const target = `${root}/${item.target.slice(first.length + 1)}`
      yield tarHeader({ path, kind: 'hardlink', mode: item.mode, time: item.time, target, owner })
    } else {
      facts.entries -= 1
      skipped.push({ path: `/${showPath(path)}`, why: `a ${item.kind}` })
    }
  }
  if (file !== undefined) yield tarPadding(file.size)
}

/** Whether an entry is taken, by its path inside of what is read. */
function depths(take: SnapshotRead['take']): (inner: BytePath) => boolean {
  if (typeof take === 'string') return (inner) => take === 'whole' || inner === ''
  const children = new Map([...take].map(([name, depth]) => [rooted(`/${name}`), depth]))
  return (inner) => {
    const [name = '', ...rest] = inner.split('/')
    const depth = children.get(name)
    return depth === 'whole' || (depth === 'alone' && rest.length === 0)
  }
}

const deletedTogether = 200

export async function placeSnapshot(options: {
  /** A fresh container of the image that the agent had. */
  sandbox: Sandbox
  snapshot: Snapshot
  signal?: AbortSignal
}): Promise<void> {
  const { sandbox, snapshot, signal } = options
  for (let at = 0; at < snapshot.deleted.length; at += deletedTogether)
    await removeAll(sandbox, snapshot.deleted.slice(at, at + deletedTogether), signal)
  if (snapshot.entries > 0)
    await sandbox.writeArchive('/', createReadStream(snapshot.file), signalOption(signal))
}
