/**
 * What the pinned image holds before any agent: where the repository is, which commit it is at, which paths that
 * commit tracks, and the whole work tree as it lies there (built files, local edits and all). An agent's change is a
 * difference against this, so what the image brought untracked and the agent left alone is in no patch. The answer
 * depends on the image alone; a caller may keep it by image, workdir and mode.
 */
import { RunnerError } from '../errors.ts'
import type { BytePath } from './path-name.ts'
import { exitCodeOf, type Sandbox } from './sandbox.ts'
import { readTree, type Tree } from './tree.ts'
import { lastLines, runGitScript, scriptExit } from './trusted-git.ts'

export interface Pristine {
  /** Top of the work tree (patch) or the workdir itself (snapshot); patches are relative to it. */
  readonly root: string
  /** Absolute path of the image's git. */
  readonly git: string
  /** The base commit; null in a snapshot. */
  readonly head: string | null
  /** Paths of the base commit; empty in a snapshot. */
  readonly tracked: ReadonlySet<BytePath>
  readonly tree: Tree
}

const probe = `
cd "$1" || exit ${scriptExit.noDirectory}
git=$(command -v git) || exit ${scriptExit.noGit}
if [ "$2" = snapshot ]; then printf '%s\\0' "$git" "$(pwd -P)" ''; exit 0; fi
top=$("$git" -c safe.directory='*' rev-parse --show-toplevel) || exit ${scriptExit.noRepository}
[ -n "$top" ] || exit ${scriptExit.noRepository}
head=$("$git" -c safe.directory='*' rev-parse --verify -q 'HEAD^{commit}') || exit ${scriptExit.noHead}
printf '%s\\0' "$git" "$top" "$head"
"$git" -c safe.directory='*' ls-tree -r -z --name-only --full-tree "$head"
`

export async function readPristine(options: {
  sandbox: Sandbox
  workdir: string
  mode: 'patch' | 'snapshot'
  /** The commit that the task names; null or absent: whatever HEAD is. */
  baseCommit?: string | null
  signal?: AbortSignal
}): Promise<Pristine> {
  const { sandbox, workdir, mode, signal } = options
  const run = await runGitScript(sandbox, probe, [workdir, mode], { scratch: false, signal })
  refuse(exitCodeOf(run.end), workdir, lastLines(run.stderr))
  const [git = '', top = '', head = '', ...names] = run.stdout.toString('latin1').split('\0')
  const root = Buffer.from(top, 'latin1').toString('utf8')
  if (!git.startsWith('/') || !root.startsWith('/'))
    throw taskError(`git in the image answered ${JSON.stringify({ git, root })}`)
  if (root === '/') throw taskError(`workdir ${workdir} is the root of the file system`)
  const expected = options.baseCommit ?? null
  if (mode === 'patch' && expected !== null && head !== expected)
    throw taskError(
      `the image's repository at ${root} is at ${head}, but the task names base_commit ${expected}; build the image at that commit or correct task.toml`,
    )
  const reading = await readTree(
    sandbox,
    root,
    { maxEntries: 5_000_000, maxBytes: 256 * 1024 ** 3 },
    { signal },
  )
  if (!reading.ok) throw taskError(`in the pristine image, ${reading.message}`)
  return {
    root,
    git,
    head: head === '' ? null : head,
    tracked: new Set(names.filter((name) => name !== '')),
    tree: reading.tree,
  }
}

function refuse(code: number | null, workdir: string, message: string): void {
  if (code === 0) return
  const known: Readonly<Record<number, string>> = {
    [scriptExit.noDirectory]: `the image has no directory ${workdir}; correct workdir in task.toml`,
    [scriptExit.noGit]: 'the image has no git; install it, the patch is made with it',
    [scriptExit.noRepository]: `${workdir} is not in a git repository in the image (${message}); commit the tree there, or use verify = "snapshot"`,
    [scriptExit.noHead]: `the repository at ${workdir} in the image has no commit; commit the tree`,
  }
  const mistake = code === null ? undefined : known[code]
  if (mistake !== undefined) throw taskError(mistake)
  throw new RunnerError(
    'collect_failed',
    'infra',
    `looking at ${workdir} in the pristine container failed (${code ?? 'no exit code'}): ${message}`,
  )
}

const taskError = (message: string): RunnerError =>
  new RunnerError('collect_failed', 'task', message)

/** Git has no literal pathspecs here; a leading `./` keeps a name like `:(glob)x` from being read as magic. */
const checkIgnore = `
unset GIT_LITERAL_PATHSPECS
cd "$2" && GIT_WORK_TREE="$2" "$1" check-ignore --no-index -z --stdin
`

/**
 * Which of these paths the pristine tree's own ignore rules ignore. Git answers by what lies there: below something that
 * is no directory it refuses the question, and a rule for directories would match a file that took one's place. Such
 * paths are not asked about and count as not ignored.
 */
export async function ignoredPaths(
  sandbox: Sandbox,
  pristine: Pristine,
  paths: readonly BytePath[],
  options: { signal?: AbortSignal | undefined } = {},
): Promise<ReadonlySet<BytePath>> {
  const { entries } = pristine.tree
  const directories = new Set([...entries.keys()].flatMap(ancestors))
  const askable = paths.filter(
    (path) => !directories.has(path) && !ancestors(path).some((up) => entries.has(up)),
  )
  if (askable.length === 0) return new Set()
  const run = await runGitScript(sandbox, checkIgnore, [pristine.git, pristine.root], {
    stdin: Buffer.from(askable.map((path) => `./${path}\0`).join(''), 'latin1'),
    scratch: true,
    signal: options.signal,
  })
  const code = exitCodeOf(run.end)
  if (code !== 0 && code !== 1)
    throw new RunnerError(
      'collect_failed',
      'infra',
      `git check-ignore failed in the pristine container (${code ?? 'no exit code'}): ${lastLines(run.stderr)}`,
    )
  const answer = run.stdout.toString('latin1').split('\0')
  return new Set(answer.filter((path) => path !== '').map((path) => path.slice(2)))
}

/** `a`, `a/b` of `a/b/c`. */
export function ancestors(path: BytePath): BytePath[] {
  const found: BytePath[] = []
  for (let at = path.indexOf('/'); at !== -1; at = path.indexOf('/', at + 1))
    found.push(path.slice(0, at))
  return found
}
