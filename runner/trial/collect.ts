/**
 * Makes the patch of a trial. The agent's tree comes out of its frozen container as the engine's archive and is
 * compared here, blob by blob, with the pinned image's own; only what differs goes, as raw bytes, into trusted git in a
 * fresh container of that image. The agent's git, configuration, attributes, hooks, index and history take no part.
 *
 * Left out and named: what git can't hold, and files that the image's own ignore rules ignore and its base commit
 * doesn't track. A workdir that is gone, unreadable or too large is the agent's failure; a transfer that breaks is an
 * infra error, so that honest work is never scored zero for it.
 */
import { Readable } from 'node:stream'
import { RunnerError, messageOf } from '../errors.ts'
import { isPathMissing, isRefused } from './engine-answer.ts'
import { fastImportStream, type Side } from './fast-import.ts'
import { showPath, type BytePath } from './path-name.ts'
import { ancestors, ignoredPaths, type Pristine } from './pristine.ts'
import type { Captured, Sandbox } from './sandbox.ts'
import {
  readTree,
  treeDigest,
  type Tree,
  type TreeEntry,
  type TreeMode,
  type TreeReading,
} from './tree.ts'
import { mustSucceed, runGitScript } from './trusted-git.ts'

export { isPathMissing }

export interface CollectLimits {
  /** Beyond what the image itself holds. */
  readonly addedEntries: number
  readonly addedBytes: number
  /** Bytes of the changed files, old and new together. */
  readonly changedBytes: number
}

export const defaultCollectLimits: CollectLimits = {
  addedEntries: 500_000,
  addedBytes: 1024 ** 3,
  changedBytes: 256 * 1024 ** 2,
}

/** One path of the patch. `path` is as `showPath` writes it. */
export interface Change {
  readonly path: string
  readonly status: 'added' | 'modified' | 'deleted'
  /** What lies there after the patch; null where it was deleted. */
  readonly mode: TreeMode | null
  readonly blob: string | null
}

export interface AgentFailure {
  readonly code:
    | 'workdir_missing'
    | 'workdir_replaced'
    | 'workdir_unreadable'
    | 'tree_too_large'
    | 'patch_too_large'
    | 'patch_unusable'
    | 'artifact_too_large'
  readonly message: string
}

export interface Collected {
  readonly ok: true
  readonly patch: Buffer
  readonly empty: boolean
  /** Where the patch applies. */
  readonly root: string
  readonly changes: readonly Change[]
  readonly skipped: readonly { readonly path: string; readonly why: string }[]
  /** New, changed or deleted, ignored by the image's own rules, and therefore not in the patch. */
  readonly ignored: readonly string[]
  /** `sha256:…` of the tree that the patch makes of the pristine one. */
  readonly treeId: string
}

export type CollectOutcome = Collected | { readonly ok: false; readonly failure: AgentFailure }

type Changed = Map<BytePath, { old?: TreeEntry; next?: TreeEntry }>

export async function collectPatch(options: {
  /** The frozen task lease. */
  agent: Sandbox
  /** A fresh container of the pinned image, asked for only when something changed. Nothing is left behind in it. */
  pristineSandbox: () => Promise<Sandbox>
  pristine: Pristine
  limits?: CollectLimits
  signal?: AbortSignal
}): Promise<CollectOutcome> {
  const { agent, pristine, signal, limits = defaultCollectLimits } = options
  const reading = await readAgentTree(agent, pristine, limits, signal)
  if (!('ok' in reading)) return { ok: false, failure: reading }
  if (!reading.ok) return { ok: false, failure: agentFailureOf(reading) }
  const all = compare(pristine.tree, reading.tree)
  const skipped = reading.tree.skipped.map(({ path, why }) => ({ path: showPath(path), why }))
  if (all.size === 0)
    return collected(pristine, new Map(), { patch: Buffer.alloc(0), skipped, ignored: [] })

  const sandbox = await options.pristineSandbox()
  const ignored = await ignoredChanges(sandbox, pristine, all, signal)
  const changed = new Map([...all].filter(([path]) => !ignored.has(path)))
  const names = [...ignored].map(showPath)
  const bytes = [...changed.values()].reduce(
    (sum, { old, next }) => sum + (old?.size ?? 0) + (next?.size ?? 0),
    0,
  )
  if (bytes > limits.changedBytes)
    return {
      ok: false,
      failure: {
        code: 'patch_too_large',
        message: `the changed files hold ${bytes} bytes, more than the ${limits.changedBytes} that a patch may; largest: ${largest(changed)}`,
      },
    }
  const patch =
    changed.size === 0
      ? Buffer.alloc(0)
      : await makePatch({ agent, sandbox, pristine, changed, limits, signal })
  return collected(pristine, changed, { patch, skipped, ignored: names })
}

function collected(
  pristine: Pristine,
  changed: Changed,
  rest: Pick<Collected, 'patch' | 'skipped' | 'ignored'>,
): Collected {
  const entries = new Map(pristine.tree.entries)
  for (const [path, { next }] of changed)
    if (next === undefined) entries.delete(path)
    else entries.set(path, next)
  return {
    ok: true,
    empty: changed.size === 0,
    root: pristine.root,
    changes: [...changed]
      .map(([path, { old, next }]) => ({
        path: showPath(path),
        status: statusOf(old, next),
        mode: next?.mode ?? null,
        blob: next?.blob ?? null,
      }))
      .sort((a, b) => (a.path < b.path ? -1 : 1)),
    treeId: treeDigest(entries),
    ...rest,
  }
}

const statusOf = (old?: TreeEntry, next?: TreeEntry): Change['status'] =>
  old === undefined ? 'added' : next === undefined ? 'deleted' : 'modified'

/**
 * A container that is gone is infra. An engine that answers, but can't read this path, twice, has been shown
 * something that the agent made.
 */
async function readAgentTree(
  agent: Sandbox,
  pristine: Pristine,
  limits: CollectLimits,
  signal: AbortSignal | undefined,
): Promise<TreeReading | AgentFailure> {
  const read = () =>
    readTree(
      agent,
      pristine.root,
      {
        maxEntries: pristine.tree.count + limits.addedEntries,
        maxBytes: pristine.tree.bytes + limits.addedBytes,
      },
      { signal },
    )
  try {
    return await read()
  } catch (first) {
    signal?.throwIfAborted()
    if (isPathMissing(first)) return missing(pristine.root)
    try {
      return await read()
    } catch (second) {
      if (isPathMissing(second)) return missing(pristine.root)
      if (!isRefused(second)) throw second
      return {
        code: 'workdir_unreadable',
        message: `the engine can't read ${pristine.root} as the agent left it: ${withoutHostPath(messageOf(second))}`,
      }
    }
  }
}

/** Engines name the file by its place on the host, which is nobody's business. */
const withoutHostPath = (message: string): string => message.replace(/\/[^\s:]*\/merged(?=\/)/g, '')

const missing = (root: string): AgentFailure => ({
  code: 'workdir_missing',
  message: `${root} is gone from the sandbox`,
})

function agentFailureOf(reading: Exclude<TreeReading, { ok: true }>): AgentFailure {
  return {
    code: reading.code === 'not_a_directory' ? 'workdir_replaced' : reading.code,
    message: reading.message,
  }
}

function compare(base: Tree, next: Tree): Changed {
  const changed: Changed = new Map()
  for (const [path, entry] of next.entries) {
    const old = base.entries.get(path)
    if (old === undefined) changed.set(path, { next: entry })
    else if (old.mode !== entry.mode || old.blob !== entry.blob)
      changed.set(path, { old, next: entry })
  }
  for (const [path, old] of base.entries) if (!next.entries.has(path)) changed.set(path, { old })
  return changed
}

/** An ignored path that stands where the patch needs room (a file that became a directory) can't be left out. */
async function ignoredChanges(
  sandbox: Sandbox,
  pristine: Pristine,
  changed: Changed,
  signal: AbortSignal | undefined,
): Promise<ReadonlySet<BytePath>> {
  if (pristine.head === null) return new Set()
  const untracked = [...changed.keys()].filter((path) => !pristine.tracked.has(path))
  const ignored = await ignoredPaths(sandbox, pristine, untracked, { signal })
  if (ignored.size === 0) return ignored
  const kept = new Set<BytePath>()
  const needed = new Set<BytePath>()
  for (const [path, { next }] of changed) {
    if (ignored.has(path) || next === undefined) continue
    kept.add(path)
    for (const up of ancestors(path)) needed.add(up)
  }
  return new Set(
    [...ignored].filter((path) => !needed.has(path) && !ancestors(path).some((up) => kept.has(up))),
  )
}

const largest = (changed: Changed): string =>
  [...changed]
    .sort(([, a], [, b]) => (b.next?.size ?? 0) - (a.next?.size ?? 0))
    .slice(0, 3)
    .map(([path, { next }]) => `${showPath(path)} (${next?.size ?? 0})`)
    .join(', ')

/** Its first line says that it runs: until then nothing may be read from its own container. */
const importAndDiff = `
echo
"$1" fast-import --quiet --done || exit 50
"$1" diff-tree -r -z --raw --no-renames --abbrev=40 refs/heads/base refs/heads/new >"$scratch/raw" || exit 51
wc -c <"$scratch/raw" && cat "$scratch/raw" || exit 52
"$1" diff-tree -r -p --binary --full-index --no-renames --no-color --no-textconv --no-ext-diff \
  --src-prefix=a/ --dst-prefix=b/ -U3 refs/heads/base refs/heads/new || exit 53
`

async function makePatch(options: {
  agent: Sandbox
  sandbox: Sandbox
  pristine: Pristine
  changed: Changed
  limits: CollectLimits
  signal: AbortSignal | undefined
}): Promise<Buffer> {
  const { agent, sandbox, pristine, changed, limits, signal } = options
  const base: Side = { sandbox, root: pristine.root, entries: oneSide(changed, 'old') }
  const next: Side = { sandbox: agent, root: pristine.root, entries: oneSide(changed, 'next') }
  let fault: Error | undefined
  // An archive that is being read keeps the engine from starting anything in its container: the base is read from the
  // very container that git is to run in, and git would never take what was read.
  const running = Promise.withResolvers<boolean>()
  const stream = Readable.from(
    (async function* () {
      try {
        if (await running.promise) yield* fastImportStream(base, next, { signal })
      } catch (error) {
        fault = error instanceof Error ? error : new Error(String(error))
        // Git sees a stream without `done` and refuses it.
      }
    })(),
    { objectMode: false },
  )
  let run: Captured
  try {
    run = await runGitScript(sandbox, importAndDiff, [pristine.git], {
      stdin: stream,
      scratch: true,
      // Base85 and context lines; a deleted binary file appears once.
      limitBytes: limits.changedBytes * 3 + 64 * 1024 ** 2,
      onStdout: () => running.resolve(true),
      signal,
    })
  } finally {
    running.resolve(false)
    // ends an archive that nobody reads any more
    stream.destroy()
  }
  if (fault !== undefined) throw fault
  const { stdout } = mustSucceed(run, 'making the patch')
  const first = stdout.indexOf(0x0a) + 1
  const line = stdout.indexOf(0x0a, first)
  const rawBytes = Number(stdout.toString('latin1', first, line))
  const raw = stdout.toString('latin1', line + 1, line + 1 + rawBytes)
  checkRaw(raw, changed)
  return stdout.subarray(line + 1 + rawBytes)
}

function oneSide(changed: Changed, side: 'old' | 'next'): Map<BytePath, TreeEntry> {
  const entries = new Map<BytePath, TreeEntry>()
  for (const path of [...changed.keys()].sort()) {
    const entry = changed.get(path)?.[side]
    if (entry !== undefined) entries.set(path, entry)
  }
  return entries
}

/** Git's own list of what differs must be ours: same paths, modes and blob ids. */
function checkRaw(raw: string, changed: Changed): void {
  const fields = raw.split('\0')
  const seen = new Set<BytePath>()
  for (let at = 0; at + 1 < fields.length; at += 2) {
    const [oldMode, newMode, oldBlob, newBlob] = (fields[at] ?? '').slice(1).split(' ')
    const path = fields[at + 1] ?? ''
    const pair = changed.get(path)
    const right =
      oldMode === (pair?.old?.mode ?? '000000') &&
      newMode === (pair?.next?.mode ?? '000000') &&
      oldBlob === (pair?.old?.blob ?? '0'.repeat(40)) &&
      newBlob === (pair?.next?.blob ?? '0'.repeat(40))
    if (pair === undefined || !right) throw notOurs(path)
    seen.add(path)
  }
  for (const path of changed.keys()) if (!seen.has(path)) throw notOurs(path)
}

const notOurs = (path: BytePath): RunnerError =>
  new RunnerError(
    'collect_failed',
    'infra',
    `git in the pristine container disagrees about ${showPath(path)}; the execution is run again`,
  )
