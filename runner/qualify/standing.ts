/**
 * Whether what is known of a task still holds: qualified, failed, stale or never looked at, and what changed since. Read
 * from the files beside the task; decides nothing. One rule: evidence counts only for the task, tests, instruction and
 * image that it was made with. An image that was built again from the same recipe is the same image, and said.
 */
import type { Task } from '../task/task.ts'
import { evidenceFolder, readTree, treeDigest } from '../task/tree.ts'
import { readQualification, type Bound, type Qualification } from './document.ts'
import { imageRecipe } from './image-identity.ts'

export type StandingState = 'qualified' | 'failed' | 'stale' | 'unqualified'

export interface Standing {
  readonly task: string
  readonly state: StandingState
  /** Of the qualification document; null where there is none. */
  readonly digest: string | null
  readonly at: string | null
  /** What is no longer as it was, for people. */
  readonly changed: readonly string[]
  /** The image has another id, and the same recipe. */
  readonly rebuilt: boolean
  readonly document: Qualification | null
}

const maxFiles = 2000

/** Files of the task by path, evidence about it left out. */
export async function taskFiles(task: Pick<Task, 'dir'>): Promise<Record<string, string>> {
  const entries = (await readTree(task.dir, { without: evidenceFolder })).filter(
    ({ kind }) => kind !== 'directory',
  )
  if (entries.length > maxFiles) return {}
  return Object.fromEntries(
    entries.map(({ path, sha256, executable }) => [path, executable ? `${sha256}+x` : sha256]),
  )
}

export async function boundTo(task: Task, image: string): Promise<Bound> {
  return {
    task: treeDigest(await readTree(task.dir, { without: evidenceFolder })),
    tests: task.testsDigest,
    instruction: task.instructionDigest,
    image,
    recipe: await imageRecipe(task),
  }
}

/** `image`: the id it would run by; null where that is not known yet, and then only its recipe counts. */
export async function standingOf(task: Task, image: string | null): Promise<Standing> {
  const read = await readQualification(task.dir)
  if (read === null)
    return {
      task: task.name,
      state: 'unqualified',
      digest: null,
      at: null,
      changed: [],
      rebuilt: false,
      document: null,
    }
  const { document, digest } = read
  const now = await boundTo(task, image ?? document.digests.image)
  const files = document.digests.task === now.task ? document.files : await taskFiles(task)
  const { changed, rebuilt } = changesSince(document, now, files)
  return {
    task: task.name,
    state: changed.length > 0 ? 'stale' : document.qualified ? 'qualified' : 'failed',
    digest,
    at: document.endedAt,
    changed,
    rebuilt,
    document,
  }
}

/** Pure: what of the task is no longer what was qualified. */
export function changesSince(
  { digests: then, files: thenFiles }: Pick<Qualification, 'digests' | 'files'>,
  now: Bound,
  files: Readonly<Record<string, string>>,
): { changed: readonly string[]; rebuilt: boolean } {
  const changed: string[] = []
  if (then.tests !== now.tests) changed.push(named('tests', 'tests/', thenFiles, files))
  if (then.instruction !== now.instruction) changed.push('the instruction')
  const rebuilt = then.image !== now.image && then.recipe !== null && then.recipe === now.recipe
  if (then.recipe !== now.recipe) changed.push("the image's recipe (environment/ or its base)")
  else if (then.image !== now.image && !rebuilt)
    changed.push(`the image (was ${short(then.image)}, is ${short(now.image)})`)
  if (then.task !== now.task && changed.length === 0)
    changed.push(named('the task', '', thenFiles, files))
  else if (then.task !== now.task) {
    const rest = differing(thenFiles, files).filter(
      (file) => !file.startsWith('tests/') && !file.startsWith('environment/'),
    )
    if (rest.length > 0) changed.push(list(rest))
  }
  return { changed, rebuilt }
}

const short = (digest: string): string => digest.slice(0, 'sha256:'.length + 12)

function differing(
  then: Readonly<Record<string, string>>,
  now: Readonly<Record<string, string>>,
): string[] {
  const paths = new Set([...Object.keys(then), ...Object.keys(now)])
  return [...paths].filter((path) => then[path] !== now[path]).toSorted()
}

const list = (files: readonly string[]): string =>
  files.slice(0, 6).join(', ') + (files.length > 6 ? ` and ${files.length - 6} more files` : '')

function named(
  what: string,
  prefix: string,
  then: Readonly<Record<string, string>>,
  now: Readonly<Record<string, string>>,
): string {
  const files = differing(then, now).filter((file) => file.startsWith(prefix))
  return files.length === 0 ? what : `${what} (${list(files)})`
}
