/**
 * Git in the image: the repository that the agent works in, and every other one. What the base commit does not reach
 * is what came after it, whatever it hides behind; other repositories count when they hold this project's history.
 */
import type { Sandbox } from '../../../trial/sandbox.ts'
import type { TaskImageFacts } from '../../lenient.ts'
import type { Findings } from '../finding.ts'
import type { RuleName } from '../rules.ts'
import type { Fingerprints } from './fingerprint.ts'
import { askRepository, listTree, type RepositoryAnswer, type TreeFile } from './git-ask.ts'
import { copyRepository, type CopiedRepository } from './git-copy.ts'
import type { LayerScan } from './layer-scan.ts'
import { isPathMissing } from '../../../trial/engine-answer.ts'

export interface WorkRepository {
  /** Top of its work tree, without a leading slash. */
  readonly root: string
  /** Files of the base commit, by path as bytes. */
  readonly tree: ReadonlyMap<string, TreeFile>
}

export interface GitCheck {
  readonly findings: Findings
  readonly task: TaskImageFacts
  readonly workdir: string
  readonly scan: LayerScan
  readonly prints: Fingerprints
  /** A container of the task's image, for reading only. */
  readonly image: Sandbox
  /** A container of our own image, with a git that can be trusted. */
  readonly trusted: Sandbox
  readonly signal: AbortSignal
}

const maxOthers = 20
const maxShown = 3

export async function checkGit(check: GitCheck): Promise<WorkRepository | null> {
  const { findings, scan, workdir, task } = check
  const directories = [...scan.heads].filter((path) => scan.objectDirectories.has(path))
  const own = nearest(directories, workdir)
  const copied: CopiedRepository[] = []
  const work = own === null ? null : await openRepository(check, own, copied)
  let known: WorkRepository | null = null
  if (work === null) {
    if (task.verify === 'patch')
      findings.add(
        'git-missing',
        `image:/${workdir}`,
        'is in no git repository: commit the tree there in the Dockerfile, or use verify = "snapshot"',
      )
  } else known = await checkWork(check, work)
  const others = directories.filter((path) => path !== own).slice(0, maxOthers)
  for (const path of others) {
    const other = await openRepository(check, path, copied)
    if (other !== null) await checkOther(check, other, known, work)
  }
  for (const path of directories.slice(maxOthers + 1))
    findings.add(
      'not-inspected',
      `image:/${path}`,
      `one repository too many: ${maxOthers} are looked into`,
    )
  for (const path of scan.bundles)
    findings.add(
      'git-other-repository',
      `image:/${path}`,
      'is a git bundle, a history in one file: leave it out of the image, in every layer',
    )
  checkRemoved(check, copied)
  return known
}

/** `a/b/.git` for a workdir at or under a/b. */
function nearest(directories: readonly string[], workdir: string): string | null {
  const fitting = directories.filter((path) => {
    const top = path.replace(/(?:^|\/)\.git$/, '')
    return /(?:^|\/)\.git$/.test(path) && (top === '' || `${workdir}/`.startsWith(`${top}/`))
  })
  return fitting.toSorted((a, b) => b.length - a.length)[0] ?? null
}

/** null where a later layer removed it. */
async function openRepository(
  { image, trusted, signal }: GitCheck,
  directory: string,
  copied: CopiedRepository[],
): Promise<CopiedRepository | null> {
  try {
    const repository = await copyRepository({
      from: image,
      to: trusted,
      directory,
      name: `repository-${copied.length}`,
      signal,
    })
    copied.push(repository)
    return repository
  } catch (error) {
    if (isPathMissing(error)) return null
    throw error
  }
}

async function checkWork(
  check: GitCheck,
  repository: CopiedRepository,
): Promise<WorkRepository | null> {
  const { findings, task, trusted, signal } = check
  const file = `image:/${repository.directory}`
  checkFacts(findings, repository)
  const { head } = repository
  if (head === null) {
    findings.add('git-missing', file, 'the repository has no commit at HEAD: commit the tree')
    return null
  }
  if (task.baseCommit !== null && head !== task.baseCommit)
    findings.add(
      'git-head',
      file,
      `HEAD is ${head}, but task.toml names base_commit ${task.baseCommit}: check out that commit in the Dockerfile, or correct task.toml`,
    )
  const base = task.baseCommit ?? head
  const asked = await ask(check, repository, base)
  const answer = asked === 'no-base' && base !== head ? await ask(check, repository, head) : asked
  if (answer === 'no-base' || 'unreadable' in answer) {
    const why = answer === 'no-base' ? `commit ${base} is not in it` : answer.unreadable
    findings.add('not-inspected', file, `our git can't read the repository: ${why}`)
    return null
  }
  const at = asked === 'no-base' ? head : base
  checkAnswer(findings, repository, answer, at)
  const tree = await listTree(trusted, repository, at, signal)
  const inTree = new Set([...tree.values()].map(({ blob }) => blob))
  checkAnswers(check, repository, answer, inTree)
  return { root: repository.directory.replace(/\/?\.git$/, ''), tree }
}

const ask = (
  { trusted, prints, signal }: GitCheck,
  repository: CopiedRepository,
  base: string,
  blobs: readonly string[] = [],
): ReturnType<typeof askRepository> =>
  askRepository(trusted, repository, {
    base,
    named: repository.named.map(({ oid }) => oid),
    blobs: [...prints.sources.map(({ blob }) => blob), ...blobs],
    signal,
  })

function checkFacts(findings: Findings, repository: CopiedRepository): void {
  const file = `image:/${repository.directory}`
  for (const alternate of repository.alternates)
    findings.add(
      'git-alternates',
      file,
      `borrows objects from ${alternate}: \`git repack -ad\` and remove objects/info/alternates`,
    )
  if (repository.linked)
    findings.add(
      'git-alternates',
      file,
      'objects/ is a link to elsewhere: keep the objects in the repository',
    )
  if (repository.grafts) findings.add('git-replace', file, 'info/grafts changes history: remove it')
  for (const { rule, where } of repository.named)
    if (rule === 'git-replace')
      findings.add('git-replace', file, `${where}: history is not what it says; delete it`)
  for (const name of repository.worktrees)
    findings.add('git-worktree', file, `worktree ${name}: \`git worktree remove ${name}\``)
  for (const remote of repository.remotes)
    findings.add(
      'git-remote',
      file,
      `remote ${remote}: \`git remote remove ${remote.split(' ')[0]}\``,
    )
  if (repository.reftable)
    findings.add(
      'not-inspected',
      file,
      'refs in reftable format are not read: `git refs migrate --ref-format=files`',
    )
}

const remedies: Partial<Record<RuleName, string>> = {
  'git-future-ref': 'delete it',
  'git-stash': '`git stash clear`',
  'git-notes': 'delete the ref',
  'git-reflog': '`git reflog expire --expire=now --all`',
  'git-pseudo-ref': 'remove the file',
  'git-worktree': '`git worktree remove`',
}

function checkAnswer(
  findings: Findings,
  repository: CopiedRepository,
  answer: RepositoryAnswer,
  base: string,
): void {
  const file = `image:/${repository.directory}`
  const byRule = new Map<RuleName, Set<string>>()
  for (const { rule, oid, where } of repository.named) {
    if (!answer.beyond.has(oid) || rule === 'git-replace') continue
    const list = byRule.get(rule) ?? new Set()
    list.add(`${where} at ${oid.slice(0, 12)}`)
    byRule.set(rule, list)
  }
  for (const [rule, all] of byRule)
    findings.add(
      rule,
      file,
      `${some([...all])}, which the base commit ${base.slice(0, 12)} does not reach: ${remedies[rule] ?? 'delete it'}, then \`git gc --prune=now\`, all in the layer that made it`,
    )
  const counts = Object.entries(answer.unreachable)
  if (counts.length === 0) return
  const what = counts.map(([type, count]) => `${count} ${type}${count === 1 ? '' : 's'}`).join(', ')
  const later = answer.commits
    .slice(0, maxShown)
    .map(
      ([id, date, subject]) =>
        `${id.slice(0, 12)} of ${date.slice(0, 10)} "${subject.slice(0, 60)}"`,
    )
  findings.add(
    'git-unreachable-object',
    file,
    `${what} that the base commit (${answer.baseDate.slice(0, 10)}) does not reach${later.length === 0 ? '' : `, such as ${later.join(', ')}`}: \`git reflog expire --expire=now --all && git gc --prune=now\`, or commit the tree to a new repository`,
  )
}

const some = (items: readonly string[]): string =>
  items.length <= maxShown
    ? items.join(', ')
    : `${items.slice(0, maxShown).join(', ')} and ${items.length - maxShown} more`

function checkAnswers(
  { findings, prints }: GitCheck,
  repository: CopiedRepository,
  answer: RepositoryAnswer,
  inTree: ReadonlySet<string>,
): void {
  for (const { path, blob } of prints.sources)
    if (answer.held.has(blob) && !inTree.has(blob))
      findings.add(
        'git-answer-object',
        `image:/${repository.directory}`,
        `object ${blob.slice(0, 12)} is ${path}, byte for byte: leave it out of the history`,
      )
}

async function checkOther(
  check: GitCheck,
  repository: CopiedRepository,
  known: WorkRepository | null,
  work: CopiedRepository | null,
): Promise<void> {
  const { findings } = check
  const file = `image:/${repository.directory}`
  const { head } = repository
  const base = check.task.baseCommit ?? work?.head ?? null
  const sample = [...new Set([...(known?.tree.values() ?? [])].map(({ blob }) => blob))]
  const step = Math.max(1, Math.floor(sample.length / 200))
  const blobs = sample.filter((_, index) => index % step === 0)
  const withBase = base === null ? 'no-base' : await ask(check, repository, base, blobs)
  const answer =
    withBase === 'no-base'
      ? head === null
        ? null
        : await ask(check, repository, head, blobs)
      : withBase
  if (answer === null || answer === 'no-base') return
  if ('unreadable' in answer) {
    findings.add('not-inspected', file, `our git can't read the repository: ${answer.unreadable}`)
    return
  }
  checkAnswers(check, repository, answer, new Set())
  if (withBase !== 'no-base' && base !== null) {
    checkFacts(findings, repository)
    checkAnswer(findings, repository, answer, base)
    return
  }
  const shared = blobs.filter((blob) => answer.held.has(blob)).length
  if (shared >= 3 && shared * 10 >= blobs.length)
    findings.add(
      'git-other-repository',
      file,
      `holds this project's files (${shared} of ${blobs.length} looked for) in a history of its own: remove it in the layer that made it`,
    )
}

/** Objects of lower layers that the image no longer shows: the agent can't see them, whoever has the image can. */
function checkRemoved({ findings, scan }: GitCheck, copied: readonly CopiedRepository[]): void {
  const shown = new Set(
    copied.flatMap(({ directory, objects }) => [...objects].map((path) => `${directory}/${path}`)),
  )
  const removed = new Map<string, number>()
  for (const paths of scan.gitObjects.values())
    for (const path of paths) {
      if (shown.has(path)) continue
      const repository = path.replace(/\/?objects\/.*$/, '')
      removed.set(repository, (removed.get(repository) ?? 0) + 1)
    }
  for (const [repository, count] of removed)
    findings.add(
      'git-removed-object',
      `image:/${repository}`,
      `a lower layer holds ${count} pack or object file${count === 1 ? '' : 's'} that a later layer removed: clean up in the RUN that made them, or build in a stage of its own`,
    )
}
