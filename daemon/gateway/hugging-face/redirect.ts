/**
 * Where the gateway follows a redirect of the Hub to. On the Hub itself: to the same repository only, so that one which
 * was renamed doesn't slip past the policy that named the old one. Away from it: for a file's bytes alone, to the
 * published file hosts and those of the configuration, without the token. Nothing of this is ever told to a sandbox.
 */
import { huggingFaceHosts } from '../../../policy/hugging-face-hosts.ts'

export interface RedirectRules {
  readonly endpoint: URL
  readonly repo: string
  readonly purpose: 'file' | 'api'
  /** `host` or `host:port`, beside the published ones. */
  readonly fileHosts: readonly string[]
}

export type Redirect =
  | { readonly ok: true; readonly url: URL; readonly own: boolean }
  | { readonly ok: false; readonly why: string }

const publishedFileHosts: ReadonlySet<string> = new Set(huggingFaceHosts.files)

export function judgeRedirect(from: URL, location: string | null, rules: RedirectRules): Redirect {
  if (location === null || location === '')
    return { ok: false, why: 'a redirect that says not where to' }
  let url: URL
  try {
    url = new URL(location, from)
  } catch {
    return { ok: false, why: 'a redirect to what is no address' }
  }
  if (url.username !== '' || url.password !== '')
    return { ok: false, why: `a redirect to ${url.host} with credentials in it` }
  if (url.origin === rules.endpoint.origin && from.origin === url.origin) {
    if (sameRepo(url, rules)) return { ok: true, url, own: true }
    const name = repoIn(url, rules)
    return {
      ok: false,
      why:
        name === null
          ? `a redirect away from ${rules.repo}`
          : `${rules.repo} is now ${name}: name that in the policy`,
    }
  }
  if (rules.purpose === 'api') return { ok: false, why: `a redirect to ${url.host}` }
  const downgrade = url.protocol !== 'https:' && rules.endpoint.protocol === 'https:'
  if (downgrade || !/^https?:$/.test(url.protocol))
    return { ok: false, why: `a redirect to ${url.protocol}//${url.host}` }
  const published = url.port === '' && publishedFileHosts.has(url.hostname)
  const configured = rules.fileHosts.some((host) => host === url.host || host === url.hostname)
  if (published || configured) return { ok: true, url, own: false }
  return { ok: false, why: `a redirect to ${url.host}, which is no known host of the Hub's files` }
}

const pathIn = (url: URL, { endpoint }: RedirectRules): string => {
  const base = endpoint.pathname.replace(/\/$/, '')
  return url.pathname.startsWith(`${base}/`) ? url.pathname.slice(base.length) : ''
}

function sameRepo(url: URL, rules: RedirectRules): boolean {
  const path = pathIn(url, rules)
  return ['/', '/api/models/', '/api/resolve-cache/models/'].some((prefix) =>
    path.startsWith(`${prefix}${rules.repo}/`),
  )
}

function repoIn(url: URL, rules: RedirectRules): string | null {
  const path = pathIn(url, rules).replace(/^\/api\/(?:resolve-cache\/)?models/, '')
  const [owner, name] = path.split('/').slice(1)
  const repo = `${owner ?? ''}/${name ?? ''}`
  return /^[\w.-]{1,96}\/[\w.-]{1,96}$/.test(repo) && repo !== rules.repo ? repo : null
}
