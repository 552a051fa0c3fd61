/**
 * What a policy says to one request, without a daemon, a sandbox or a network: the same decisions that the listeners
 * obey, made from what a person wrote instead of what came over a socket. What can't be known before the request is
 * made (addresses, first bytes, the commit of a branch) is told as what comes next.
 */
import { decide } from './decide.ts'
import { deny, type Decision } from './decision.ts'
import { parseAuthority, parseHost, type ParsedAuthority } from './host.ts'
import { parseHubRequest } from './hugging-face-route.ts'
import { tunnelHosts } from './hugging-face-hosts.ts'
import { decideHubRequest, isCommit, type Pin } from './hugging-face.ts'
import { decideCountRequest, decideMessagesRequest } from './model-messages.ts'
import { decideModelRequest, type ModelRequestDecision, type ModelSpec } from './model-request.ts'
import { decideResponsesRequest } from './model-responses.ts'
import type { Policy } from './policy.ts'

export interface Explanation extends Pick<Decision, 'action' | 'reason' | 'rule'> {
  /** The request as it was understood. */
  readonly request: string
  /** The reason in words, where the rule has any. */
  readonly message: string | null
  /** What must hold beyond this, or what to know of it. */
  readonly then: readonly string[]
}

export type Explained =
  | ({ readonly ok: true } & Explanation)
  | { readonly ok: false; readonly message: string }

export interface ExplainOptions {
  /** The parsed body of a model request. */
  readonly body?: unknown
  /** The model of the lease; absent: the one that the body names. */
  readonly model?: string
}

export const explainForms = [
  'https://HOST/PATH',
  'http://HOST/PATH',
  'HOST:PORT',
  'CONNECT HOST:PORT',
  'METHOD http://HOST/PATH',
  'dns NAME',
  'tcp ADDRESS:PORT',
  'udp ADDRESS:PORT',
  'hf METHOD /PATH',
  'model METHOD /PATH [BODY]',
] as const

const noForm = (text: string): Explained => ({
  ok: false,
  message: `"${text}" is no request; write one of: ${explainForms.join(', ')}`,
})

export function explain(policy: Policy, text: string, options: ExplainOptions = {}): Explained {
  const words = text.trim().split(/ +/)
  const [first = '', second = '', third = ''] = words
  if (words.length === 1) {
    if (first === '') return noForm(text)
    return /^[A-Za-z][A-Za-z0-9+.-]*:\/\//.test(first)
      ? explainUrl(policy, 'GET', first)
      : explainAuthority(policy, first)
  }
  const kind = first.toLowerCase()
  if (words.length === 2) {
    if (kind === 'connect') return explainConnect(policy, second)
    if (kind === 'dns') return explainDns(policy, second)
    if (kind === 'tcp' || kind === 'udp' || kind === 'icmp')
      return explained(text, decide(policy, { kind }), ['it is refused by the kernel and counted'])
    if (/^[A-Z]+$/.test(first) && second.includes('://')) return explainUrl(policy, first, second)
  }
  if (words.length === 3 && kind === 'hf') return explainHub(policy, second, third)
  if (words.length === 3 && kind === 'model') return explainModel(policy, second, third, options)
  return noForm(text)
}

const explained = (
  request: string,
  { action, reason, rule }: Pick<Decision, 'action' | 'reason' | 'rule'>,
  then: readonly string[] = [],
  message: string | null = null,
): Explained => ({ ok: true, request, action, reason, rule, message, then })

/** An allowed request needs no words. */
const wordsOf = ({ action, message }: { action: string; message: string }): string | null =>
  action === 'deny' ? message : null

function explainAuthority(policy: Policy, text: string): Explained {
  const name = parseHost(text)
  if (name.ok)
    return {
      ok: false,
      message: `"${text}" has no port: write "${name.host}:443", "https://${name.host}/" or "dns ${name.host}"`,
    }
  return explainConnect(policy, text)
}

function explainConnect(policy: Policy, text: string, notes: readonly string[] = []): Explained {
  const target = parseAuthority(text)
  const decision = decide(policy, { kind: 'connect', target, hostHeader: null, fault: null })
  const then = [...notes]
  if (decision.action === 'allow' && target.ok) {
    then.unshift(allPublic(target.host))
    if (target.port === 443)
      then.unshift(
        `the tunnel must begin with a ClientHello for ${target.host}, and not an encrypted one`,
        'nobody sees the path inside',
      )
    else then.unshift('each request inside is decided by itself')
  }
  return explained(`CONNECT ${text}`, decision, then)
}

const allPublic = (host: string): string => `every address of ${host} must be public`

/** As far as the gateway goes where the policy pins repositories. */
function hubNote({ huggingface }: Policy, target: ParsedAuthority): string[] {
  if (huggingface === undefined || huggingface.repos.length === 0) return []
  if (!target.ok || !tunnelHosts.includes(target.host)) return []
  return ['clients of the Hub are told to ask its gateway instead: see "hf GET /PATH"']
}

function explainUrl(policy: Policy, method: string, url: string): Explained {
  const [, scheme = '', authority = '', path = ''] = /^([^:]*):\/\/([^/?#]*)([^#]*)/.exec(url) ?? []
  if (scheme.toLowerCase() === 'https') {
    const target = parseAuthority(authority, 443)
    const text = target.ok ? `${target.host}:${target.port}` : authority
    return explainConnect(policy, text, hubNote(policy, target))
  }
  const request = `${method} ${url}`
  if (scheme.toLowerCase() !== 'http')
    return explained(request, deny('bad_request'), ['the proxy speaks HTTP, and TLS by CONNECT'])
  if (authority === '127.0.0.1:8401') return explainHub(policy, method, path)
  const target = parseAuthority(authority, 80)
  const decision = decide(policy, {
    kind: 'http',
    via: 'proxy',
    method,
    target,
    hostHeader: target,
    upgrade: false,
    fault: null,
  })
  const then = target.ok && decision.action === 'allow' ? [allPublic(target.host)] : []
  return explained(request, decision, [...then, ...hubNote(policy, target)])
}

function explainDns(policy: Policy, text: string): Explained {
  const decision = decide(policy, { kind: 'dns', name: parseHost(text) })
  const answer =
    decision.action === 'allow'
      ? 'the answer is an address of ours, where the name in the request decides again'
      : 'the answer is that there is no such name'
  return explained(`dns ${text}`, decision, [answer, 'no other resolver is asked'])
}

function explainHub(policy: Policy, method: string, path: string): Explained {
  const repos = policy.huggingface?.repos ?? []
  // A branch or tag is frozen when the lease opens; until then its name stands for its commit.
  const pins = repos.map((entry): Pin => ({ entry, commit: entry.revision }))
  const request = parseHubRequest(method, path)
  const decision = decideHubRequest(pins, request)
  const then: string[] = []
  if (repos.length === 0) then.push('the policy pins no repository, so no gateway listens')
  const asked = 'repo' in request.route ? request.route.repo : null
  const moving = repos.find(({ repo, revision }) => repo === asked && !isCommit(revision))
  if (moving !== undefined)
    then.push(`${moving.revision} of ${moving.repo} is frozen to its commit when the lease opens`)
  return explained(`hf ${method} ${path}`, decision, then, wordsOf(decision))
}

type ModelDecision = (spec: ModelSpec, body: unknown) => ModelRequestDecision
const noHeaders = { version: undefined, betas: [] }

/** As the gateway's own paths: with `/v1` or, in OpenAI's APIs, without. */
const modelPaths = new Map<string, ModelDecision>([
  ['/v1/chat/completions', decideModelRequest],
  ['/chat/completions', decideModelRequest],
  ['/v1/responses', decideResponsesRequest],
  ['/responses', decideResponsesRequest],
  ['/v1/messages', (spec, body) => decideMessagesRequest(spec, body, noHeaders)],
  ['/v1/messages?beta=true', (spec, body) => decideMessagesRequest(spec, body, noHeaders)],
  ['/v1/messages/count_tokens', (spec, body) => decideCountRequest(spec, body, noHeaders)],
  [
    '/v1/messages/count_tokens?beta=true',
    (spec, body) => decideCountRequest(spec, body, noHeaders),
  ],
])

function explainModel(
  policy: Policy,
  method: string,
  path: string,
  { body, model }: ExplainOptions,
): Explained {
  const request = `model ${method} ${path}`
  const then = ['the lease, not the policy, says which model there is, and whether there is any']
  const open = decide(policy, { kind: 'model', fault: null })
  if (method === 'GET' && /^(?:\/v1)?\/models(?:\/[^?]+)?(?:\?.*)?$/.test(path))
    return explained(request, open, then)
  const judge = method === 'POST' ? modelPaths.get(path) : undefined
  if (judge === undefined)
    return explained(request, decide(policy, { kind: 'model', fault: 'path_denied' }), [
      `POST goes to ${[...modelPaths.keys()].filter((one) => /^\/v1[^?]*$/.test(one)).join(', ')}`,
    ])
  if (body === undefined)
    return explained(request, open, [...then, 'the body decides: name a file that holds it'])
  const named = typeof body === 'object' && body !== null && 'model' in body ? body.model : null
  const spec = { model: model ?? (typeof named === 'string' ? named : '') }
  const decision = judge(spec, body)
  return explained(request, decision, then, wordsOf(decision))
}
