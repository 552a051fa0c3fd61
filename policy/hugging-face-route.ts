/**
 * What one request to the Hugging Face gateway asks for, read from its method and raw target alone. Paths are decoded
 * once, and what decodes to anything odd (empty, `.` or `..` parts, control characters, backslashes) is malformed. First
 * parts of a path that are the Hub's own are matched before `owner/name`, so no repository can pass for one of them.
 */
export type HubRoute =
  /** A file's bytes or its metadata. */
  | {
      readonly kind: 'file'
      readonly repo: string
      readonly revision: string
      readonly path: string
    }
  | { readonly kind: 'info'; readonly repo: string; readonly revision: string | null }
  | {
      readonly kind: 'tree'
      readonly repo: string
      readonly revision: string
      /** The folder; '' is the root. */
      readonly path: string
      readonly recursive: boolean
    }
  | { readonly kind: 'paths-info'; readonly repo: string; readonly revision: string }
  | { readonly kind: 'refs'; readonly repo: string }
  /** What clients ask unbidden; answered here, passed on never. */
  | { readonly kind: 'noise'; readonly name: 'agent-harnesses' | 'telemetry' | 'whoami' }
  /** Well formed, and closed whatever the policy says; `what` in words. */
  | { readonly kind: 'closed'; readonly what: string; readonly write: boolean }
  | { readonly kind: 'malformed'; readonly why: string }

export interface HubRequest {
  readonly method: string
  readonly route: HubRoute
}

/** First parts of paths that are the Hub's own, so that no owner of a repository can have these names. */
export const reservedOwners: ReadonlySet<string> = new Set([
  ...['api', 'datasets', 'spaces', 'models', 'buckets', 'kernels', 'papers', 'collections', 'v2'],
  ...['posts', 'blog', 'docs', 'tasks', 'learn', 'chat', 'settings', 'login', 'logout', 'join'],
  ...['new', 'oauth', 'organizations', 'pricing', 'enterprise', 'support', 'changelog', 'mcp'],
  ...['search', 'notifications', 'webhooks', 'endpoints', 'inference', 'jobs', 'static', 'assets'],
  ...['front', 'resolve', 'closedbook', '.well-known'],
])

const ownerOrName = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?$/

/** `owner/name` of a model repository, as the Hub spells them. */
export function isRepoId(text: string): boolean {
  const [owner, name, ...more] = text.split('/')
  if (owner === undefined || name === undefined || more.length > 0) return false
  if (reservedOwners.has(owner.toLowerCase())) return false
  return [owner, name].every(
    (part) => ownerOrName.test(part) && !/--|\.\./.test(part) && !part.endsWith('.git'),
  )
}

/** Repositories that hold no model. */
const otherKinds = new Set(['datasets', 'spaces', 'buckets', 'kernels'])
const maxTarget = 4096
const commands = new Set(['revision', 'tree', 'paths-info', 'refs'])

export function parseHubRequest(method: string, target: string): HubRequest {
  const route = routeOf(method, target)
  const reads = method === 'GET' || method === 'HEAD'
  switch (route.kind) {
    case 'malformed':
    case 'closed':
      return { method, route }
    case 'noise':
      if (reads || route.name === 'telemetry') return { method, route }
      break
    case 'paths-info':
      if (method === 'POST') return { method, route }
      break
    case 'file':
    case 'info':
    case 'tree':
    case 'refs':
      if (reads) return { method, route }
      break
    default:
      return route satisfies never
  }
  const what = `${method} of ${route.kind}`
  return { method, route: { kind: 'closed', what, write: isWrite(method) } }
}

function routeOf(method: string, target: string): HubRoute {
  if (target.length > maxTarget) return malformed('longer than 4096 characters')
  if (!target.startsWith('/')) return malformed('not a path')
  const question = target.indexOf('?')
  const raw = (question === -1 ? target : target.slice(0, question)).slice(1).replace(/\/$/, '')
  const query = new URLSearchParams(question === -1 ? '' : target.slice(question + 1))
  if (raw === '') return { kind: 'closed', what: 'the pages of the Hub', write: isWrite(method) }
  const parts: string[] = []
  for (const part of raw.split('/')) {
    const decoded = decode(part)
    if (decoded === null) return malformed('its path is not plain')
    parts.push(decoded)
  }
  return hubRoute(method, parts, query)
}

const isWrite = (method: string): boolean => method !== 'GET' && method !== 'HEAD'

const malformed = (why: string): HubRoute => ({ kind: 'malformed', why })

function decode(part: string): string | null {
  let text: string
  try {
    text = decodeURIComponent(part)
  } catch {
    return null
  }
  // eslint-disable-next-line no-control-regex
  if (/[\x00-\x1f\x7f\\]/.test(text)) return null
  return text.split('/').some((one) => one === '' || one === '.' || one === '..') ? null : text
}

function hubRoute(method: string, parts: readonly string[], query: URLSearchParams): HubRoute {
  const [first = '', second = ''] = parts
  const closed = (what: string, write = isWrite(method)): HubRoute => ({
    kind: 'closed',
    what,
    write,
  })
  const git = gitOf(parts, query)
  if (git !== null) return git
  if (first === 'api') return apiRoute(method, parts, query)
  if (otherKinds.has(first)) return closed(`${first}: only model repositories are served`)
  if (reservedOwners.has(first.toLowerCase())) return closed(`/${first}`)
  for (const at of [2, 1]) {
    const [verb, revision, ...path] = parts.slice(at)
    if (verb === 'resolve' && revision !== undefined && path.length > 0)
      return {
        kind: 'file',
        repo: parts.slice(0, at).join('/'),
        revision,
        path: path.join('/'),
      }
    if (verb === 'raw' && revision !== undefined && path.length > 0)
      return closed('raw files: ask for /resolve/ instead')
  }
  return closed(second === '' ? `/${first}` : `/${first}/${second}`)
}

function apiRoute(method: string, parts: readonly string[], query: URLSearchParams): HubRoute {
  const [, kind = '', ...rest] = parts
  const write = isWrite(method)
  if (kind === 'agent-harnesses' && rest.length === 0)
    return { kind: 'noise', name: 'agent-harnesses' }
  if (kind === 'telemetry') return { kind: 'noise', name: 'telemetry' }
  if (kind === 'whoami-v2' && rest.length === 0) return { kind: 'noise', name: 'whoami' }
  if (kind === 'resolve-cache') return resolveCache(rest)
  if (otherKinds.has(kind))
    return { kind: 'closed', what: `${kind}: only model repositories are served`, write }
  if (kind !== 'models') return { kind: 'closed', what: `/api/${kind}`, write }
  if (rest.length === 0) return { kind: 'closed', what: 'the search for models', write }
  const bare = rest.length > 1 && commands.has(rest[1] ?? '')
  const at = bare ? 1 : 2
  const repo = rest.slice(0, at).join('/')
  const [verb, revision, ...path] = rest.slice(at)
  if (verb === undefined) return { kind: 'info', repo, revision: null }
  if (verb === 'refs' && revision === undefined) return { kind: 'refs', repo }
  if (verb === 'revision' && revision !== undefined && path.length === 0)
    return { kind: 'info', repo, revision }
  if (verb === 'paths-info' && revision !== undefined && path.length === 0)
    return { kind: 'paths-info', repo, revision }
  if (verb === 'tree' && revision !== undefined)
    return {
      kind: 'tree',
      repo,
      revision,
      path: path.join('/'),
      recursive: /^(?:true|1)$/i.test(query.get('recursive') ?? ''),
    }
  const token = verb.startsWith('xet-')
  return {
    kind: 'closed',
    what: token ? 'Xet transfers: files are served by /resolve/' : `${verb} of a model`,
    write: write || verb === 'xet-write-token',
  }
}

/** Where the Hub's own relative redirects of small files lead. */
function resolveCache(rest: readonly string[]): HubRoute {
  const [kind, owner = '', name = '', revision, ...path] = rest
  if (kind !== 'models' || revision === undefined || path.length === 0)
    return { kind: 'closed', what: `/api/resolve-cache/${kind ?? ''}`, write: false }
  return { kind: 'file', repo: `${owner}/${name}`, revision, path: path.join('/') }
}

/** Git and git-lfs: history, and a second way to every file. */
function gitOf(parts: readonly string[], query: URLSearchParams): HubRoute | null {
  const tail = parts.slice(-2).join('/')
  const service = query.get('service') ?? ''
  const receives = tail.endsWith('git-receive-pack') || service === 'git-receive-pack'
  const git =
    (tail === 'info/refs' && parts.length > 2) ||
    /(?:^|\/)git-(?:upload|receive)-pack$/.test(tail) ||
    (parts.includes('info') && parts.includes('lfs')) ||
    parts.some((part, index) => index < 3 && part.endsWith('.git'))
  return git ? { kind: 'closed', what: 'git', write: receives } : null
}
