/**
 * Puts a patch on the tree of a fresh container by trusted git, then proves that what lies there is, byte for byte,
 * what was collected. Git's refusal of the patch itself is the agent's (`patch_unusable`); anything else that goes
 * wrong here, a difference above all, is infra.
 */
import { RunnerError } from '../errors.ts'
import type { AgentFailure, Change } from './collect.ts'
import { isPathMissing } from './engine-answer.ts'
import { parsePath, showPath, type BytePath } from './path-name.ts'
import { ancestors } from './pristine.ts'
import { exitCodeOf, type Sandbox } from './sandbox.ts'
import { readTar } from './tar-reader.ts'
import { blobId, readTree, signalOption, type TreeEntry } from './tree.ts'
import { lastLines, runGitScript } from './trusted-git.ts'
import { createHash } from 'node:crypto'

export type ApplyOutcome =
  | { readonly ok: true }
  | { readonly ok: false; readonly failure: AgentFailure }

/** `--git-dir` of our own keeps the image's configuration, attributes and hooks out of it. */
const script = `
cat >"$scratch/patch" || exit 60
cd "$2" || exit 61
GIT_WORK_TREE="$2" "$1" apply --whitespace=nowarn -p1 "$scratch/patch" 2>"$scratch/log"
code=$?
cat "$scratch/log" >&2
[ "$code" = 0 ] && exit 0
grep -q -i -E 'permission denied|no space left|read-only file system|quota|too many open|cannot allocate' "$scratch/log" && exit 62
exit 63
`

export async function applyPatch(options: {
  sandbox: Sandbox
  /** As Collected has it. */
  root: string
  patch: Buffer
  changes: readonly Change[]
  /** The image's git, as Pristine has it. */
  git: string
  signal?: AbortSignal
}): Promise<ApplyOutcome> {
  const { sandbox, root, patch, changes, git, signal } = options
  if (changes.length === 0) return { ok: true }
  const run = await runGitScript(sandbox, script, [git, root], {
    stdin: patch,
    scratch: true,
    signal,
  })
  const code = exitCodeOf(run.end)
  if (code === 63)
    return {
      ok: false,
      failure: {
        code: 'patch_unusable',
        message: `git refuses the patch: ${lastLines(run.stderr)}`,
      },
    }
  if (code !== 0)
    throw new RunnerError(
      'verify_failed',
      'infra',
      `applying the patch in lease ${sandbox.lease} failed (${JSON.stringify(run.end.exit)}): ${lastLines(run.stderr)}`,
    )
  await checkExact(sandbox, root, changes, signal)
  return { ok: true }
}

const fewFiles = 24

async function checkExact(
  sandbox: Sandbox,
  root: string,
  changes: readonly Change[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const paths = changes.map((change) => parsePath(change.path))
  const all = new Set(paths)
  const simple =
    paths.length <= fewFiles &&
    paths.every((path) => /^[\w./+@=-]+$/.test(path) && !ancestors(path).some((up) => all.has(up)))
  const lookUp = simple
    ? (path: BytePath) => entryAt(sandbox, `${root}/${path}`, signal)
    : await wholeTree(sandbox, root, signal)
  for (const [index, change] of changes.entries()) {
    const path = paths[index] ?? ''
    const entry = await lookUp(path)
    if ((entry?.mode ?? null) !== change.mode || (entry?.blob ?? null) !== change.blob)
      throw new RunnerError(
        'verify_failed',
        'infra',
        `after the patch ${showPath(path)} is ${entry?.mode ?? 'absent'} ${entry?.blob ?? ''}, not ${change.mode ?? 'absent'} ${change.blob ?? ''}`,
      )
  }
}

async function wholeTree(
  sandbox: Sandbox,
  root: string,
  signal: AbortSignal | undefined,
): Promise<(path: BytePath) => TreeEntry | null> {
  const reading = await readTree(
    sandbox,
    root,
    { maxEntries: Infinity, maxBytes: Infinity },
    { signal },
  )
  if (!reading.ok) throw new RunnerError('verify_failed', 'infra', reading.message)
  return (path) => reading.tree.entries.get(path) ?? null
}

async function entryAt(
  sandbox: Sandbox,
  path: string,
  signal: AbortSignal | undefined,
): Promise<TreeEntry | null> {
  const archive = await sandbox.readArchive(path, signalOption(signal)).catch((error: unknown) => {
    if (isPathMissing(error)) return null
    throw error
  })
  if (archive === null) return null
  let entry: TreeEntry | null = null
  const hash = createHash('sha1')
  for await (const item of readTar(archive.tar)) {
    if (Buffer.isBuffer(item)) {
      hash.update(item)
    } else if (item.kind === 'symlink') {
      const target = Buffer.from(item.target, 'latin1')
      return { mode: '120000', blob: blobId(target), size: target.length, target: item.target }
    } else if (item.kind === 'file') {
      const mode = (item.mode & 0o100) === 0 ? '100644' : '100755'
      hash.update(`blob ${item.size}\0`)
      entry = { mode, blob: '', size: item.size }
    } else {
      return null
    }
  }
  return entry === null ? null : { ...entry, blob: hash.digest('hex') }
}
