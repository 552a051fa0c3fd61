/**
 * What a repository's own files name, without git: refs, reflogs, FETCH_HEAD and its like, remotes, alternates, grafts,
 * worktrees. Pure text. Its configuration, hooks and attributes are never given to a git of ours.
 */
import type { RuleName } from '../rules.ts'

export interface NamedObject {
  readonly rule: RuleName
  readonly oid: string
  /** Where it is named, for people: `tag v2.0 (packed-refs)`. */
  readonly where: string
}

export interface GitFacts {
  readonly head: string | null
  readonly objectFormat: 'sha1' | 'sha256'
  readonly named: readonly NamedObject[]
  readonly remotes: readonly string[]
  readonly alternates: readonly string[]
  readonly grafts: boolean
  readonly worktrees: readonly string[]
  /** Kept in a way that this reader doesn't know. */
  readonly reftable: boolean
  /** Passwords in URLs of remotes are found by the layer scan. */
  readonly shallow: string | null
}

/** Which files are asked for; the rest of `.git` (objects aside) says nothing about other commits. */
export const isFactFile = (path: string): boolean =>
  /^(?:HEAD|packed-refs|config|shallow|[A-Z_]+_HEAD|info\/grafts|objects\/info\/(?:http-)?alternates|(?:refs|logs)\/.*|worktrees\/[^/]+\/(?:HEAD|gitdir|logs\/HEAD)|(?:rebase-[a-z]+|sequencer)\/[\w-]+|reftable\/tables\.list)$/.test(
    path,
  )

const oid = '[0-9a-f]{40}(?:[0-9a-f]{24})?'
const wholeOid = new RegExp(`^(${oid})(?:\\s|$)`)

export function gitFacts(files: ReadonlyMap<string, string>): GitFacts {
  const refs = refsOf(files)
  const named: NamedObject[] = [...refs].map(([name, { id, packed }]) => {
    const [rule, word] = kindOf(name)
    return { rule, oid: id, where: `${word} ${shortRef(name)}${packed ? ' (packed-refs)' : ''}` }
  })
  for (const [path, text] of files) {
    if (path.startsWith('logs/')) named.push(...reflog(path, text))
    else if (/^worktrees\/[^/]+\/logs\//.test(path)) named.push(...reflog(path, text))
    else if (/^[A-Z_]+_HEAD$|^(?:rebase-[a-z]+|sequencer)\//.test(path))
      for (const line of text.split('\n')) {
        const id = wholeOid.exec(line.trim())?.[1]
        if (id !== undefined) named.push({ rule: 'git-pseudo-ref', oid: id, where: path })
      }
  }
  const config = files.get('config') ?? ''
  const headText = (files.get('HEAD') ?? '').trim()
  const target = /^ref:\s*(\S+)/.exec(headText)?.[1]
  const worktrees = [...files.keys()].flatMap(
    (path) => /^worktrees\/([^/]+)\/HEAD$/.exec(path)?.[1] ?? [],
  )
  for (const name of worktrees) {
    const id = wholeOid.exec((files.get(`worktrees/${name}/HEAD`) ?? '').trim())?.[1]
    if (id !== undefined) named.push({ rule: 'git-worktree', oid: id, where: `worktree ${name}` })
  }
  return {
    head:
      target === undefined
        ? (wholeOid.exec(headText)?.[1] ?? null)
        : (refs.get(target)?.id ?? null),
    objectFormat: /objectformat\s*=\s*sha256/i.test(config) ? 'sha256' : 'sha1',
    named,
    remotes: remotesOf(config),
    alternates: ['objects/info/alternates', 'objects/info/http-alternates'].flatMap((path) =>
      (files.get(path) ?? '')
        .split('\n')
        .filter((line) => line.trim() !== '' && !line.startsWith('#')),
    ),
    grafts: (files.get('info/grafts') ?? '').trim() !== '',
    worktrees,
    reftable: files.has('reftable/tables.list'),
    shallow: files.get('shallow') ?? null,
  }
}

interface Ref {
  readonly id: string
  readonly packed: boolean
}

function refsOf(files: ReadonlyMap<string, string>): Map<string, Ref> {
  const refs = new Map<string, Ref>()
  for (const line of (files.get('packed-refs') ?? '').split('\n')) {
    const match = new RegExp(`^(${oid})\\s+(\\S+)$`).exec(line.trim())
    if (match?.[1] !== undefined && match[2] !== undefined)
      refs.set(match[2], { id: match[1], packed: true })
  }
  for (const [path, text] of files) {
    if (!path.startsWith('refs/')) continue
    const id = wholeOid.exec(text.trim())?.[1]
    if (id !== undefined) refs.set(path, { id, packed: false })
  }
  return refs
}

function kindOf(name: string): [RuleName, string] {
  if (name === 'refs/stash') return ['git-stash', 'stash']
  if (name.startsWith('refs/notes/')) return ['git-notes', 'notes']
  if (name.startsWith('refs/replace/')) return ['git-replace', 'replace ref']
  if (name.startsWith('refs/tags/')) return ['git-future-ref', 'tag']
  if (name.startsWith('refs/remotes/')) return ['git-future-ref', 'remote branch']
  if (name.startsWith('refs/heads/')) return ['git-future-ref', 'branch']
  return ['git-future-ref', 'ref']
}

const shortRef = (name: string): string => name.replace(/^refs\/(?:heads|tags|remotes|notes)\//, '')

/** Both sides of each entry; a name of zeros is none. */
function reflog(path: string, text: string): NamedObject[] {
  const ids = new Set(
    text.split('\n').flatMap((line) => {
      const match = new RegExp(`^(${oid}) (${oid})\\b`).exec(line)
      return match === null ? [] : [match[1] ?? '', match[2] ?? '']
    }),
  )
  return [...ids]
    .filter((id) => !/^0+$/.test(id))
    .map((id) => ({
      rule: path.endsWith('refs/stash') ? 'git-stash' : 'git-reflog',
      oid: id,
      where: path,
    }))
}

function remotesOf(config: string): string[] {
  const found: string[] = []
  let remote: string | null = null
  for (const line of config.split('\n')) {
    const section = /^\s*\[\s*([\w-]+)(?:\s+"([^"]*)")?\s*\]/.exec(line)
    if (section !== null) remote = section[1] === 'remote' ? (section[2] ?? '') : null
    const url = /^\s*url\s*=\s*(\S+)/.exec(line)?.[1]
    if (remote !== null && url !== undefined)
      found.push(`${remote} (${url.replace(/\/\/[^/@]*@/, '//…@')})`)
  }
  return found
}
