/**
 * The one place where a request is allowed or denied. Pure: listeners gather the facts, this weighs them, and the
 * listeners carry out the answer. An attempt may be weighed more than once as facts arrive (the CONNECT line, the
 * addresses behind the name, the ClientHello), but the audit log gets one decision for each: the last.
 */
import { matchHost, type HostMatch } from './allowlist.ts'
import { allow, deny, type Decision, type Reason } from './decision.ts'
import { parseHost, type Authority, type ParsedAuthority, type ParsedHost } from './host.ts'
import { tunnelHosts } from './hugging-face-hosts.ts'
import type { Policy } from './policy.ts'

/** What the first bytes of a tunnel turned out to be. */
export type HelloFacts =
  | { readonly kind: 'hello'; readonly serverName: string | null; readonly ech: boolean }
  | { readonly kind: 'not_tls' | 'timeout' | 'ended' }

export type EgressRequest =
  /** The line of a CONNECT; the Host header only if there was one. */
  | {
      readonly kind: 'connect'
      readonly target: ParsedAuthority
      readonly hostHeader: ParsedAuthority | null
      readonly fault: Reason | null
    }
  /** What came first in the tunnel of a CONNECT to `host`. */
  | { readonly kind: 'hello'; readonly host: string; readonly hello: HelloFacts }
  /** TLS that did not ask the proxy; `name` is the parsed SNI, null where there is none. */
  | {
      readonly kind: 'tls'
      readonly name: ParsedHost | null
      readonly port: number
      readonly hello: HelloFacts
    }
  /**
   * One request in plain HTTP. `target` is what the absolute form or the CONNECT around it names; a request that
   * did not ask the proxy (`via: 'direct'`) has none but its Host header.
   */
  | {
      readonly kind: 'http'
      readonly via: 'proxy' | 'tunnel' | 'direct'
      readonly method: string
      readonly target: ParsedAuthority | null
      readonly hostHeader: ParsedAuthority | null
      readonly upgrade: boolean
      readonly fault: Reason | null
    }
  | { readonly kind: 'dns'; readonly name: ParsedHost }
  /** All addresses behind an allowed name, each with the verdict of the daemon's address check. */
  | {
      readonly kind: 'addresses'
      readonly host: string
      readonly addresses: readonly { readonly address: string; readonly dialable: boolean }[]
    }
  /** Traffic that no listener can name. */
  | { readonly kind: 'tcp' | 'udp' | 'icmp' | 'other' }
  /** The model gateway of the lease: it is its own door, so only what the request carries can be wrong. */
  | { readonly kind: 'model'; readonly fault: Reason | null }

const methods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

export function decide(policy: Policy, request: EgressRequest): Decision {
  switch (request.kind) {
    case 'connect': {
      if (request.fault !== null) return deny(request.fault)
      if (!request.target.ok) return deny(request.target.reason)
      const mismatch = hostHeaderFault(request.target, request.hostHeader)
      return mismatch ?? decideHost(policy, request.target.host, request.target.port, [80, 443])
    }
    case 'hello':
      return decideHello(policy, request.host, request.hello)
    case 'tls':
      return decideDirectTls(policy, request)
    case 'http':
      return decideHttp(policy, request)
    case 'dns': {
      if (!request.name.ok) return deny('dns_query')
      const match = matchPolicy(policy, request.name.host)
      if (match.action === 'allow') return allow('allowed_host', match.rule)
      return deny(match.reason === 'denied_host' ? 'denied_host' : 'dns_query', match.rule)
    }
    case 'addresses':
      if (request.addresses.length === 0) return deny('dns_failed')
      if (request.addresses.some(({ dialable }) => !dialable)) return deny('address_not_public')
      return allow('allowed_host', 'addresses')
    case 'tcp':
      return deny('direct_tcp')
    case 'udp':
      return deny('direct_udp')
    case 'icmp':
      return deny('direct_icmp')
    case 'other':
      return deny('direct_other')
    case 'model':
      return request.fault === null
        ? allow('allowed_gateway', 'model')
        : deny(request.fault, 'model')
    default:
      return request satisfies never
  }
}

/** The hosts of `connect`, and with `tunnel` the Hub's; a deny rule wins over both. */
function matchPolicy(policy: Policy, host: string): HostMatch {
  const match = matchHost(policy.connect, host)
  if (match.action === 'allow' || match.reason === 'denied_host') return match
  const tunnel = policy.huggingface?.tunnel === true && tunnelHosts.includes(host)
  return tunnel ? { action: 'allow', rule: 'huggingface tunnel' } : match
}

function decideHost(
  policy: Policy,
  host: string,
  port: number,
  served: readonly number[],
): Decision {
  const match = matchPolicy(policy, host)
  if (match.action === 'deny') return deny(match.reason, match.rule)
  const allowed = policy.connect.ports.some((candidate) => candidate === port)
  if (!allowed || !served.includes(port)) return deny('port_not_allowed', 'ports')
  return allow('allowed_host', match.rule)
}

/** A Host header beside another name for the target must say the same (the listener fills in a port left out). */
function hostHeaderFault(target: Authority, header: ParsedAuthority | null): Decision | null {
  if (header === null) return null
  const same = header.ok && header.host === target.host && header.port === target.port
  return same ? null : deny('host_mismatch')
}

function decideHello(policy: Policy, host: string, hello: HelloFacts): Decision {
  if (hello.kind === 'timeout') return deny('hello_timeout', 'hello')
  if (hello.kind !== 'hello') return deny('not_tls', 'hello')
  if (hello.ech) return deny('ech_present', 'hello')
  if (hello.serverName === null) return deny('sni_missing', 'hello')
  const name = parseHost(hello.serverName)
  if (!name.ok || name.host !== host) return deny('sni_mismatch', 'hello')
  return decideHost(policy, host, 443, [443])
}

function decideDirectTls(policy: Policy, request: EgressRequest & { kind: 'tls' }): Decision {
  // Without a name there is nothing to weigh: it is a connection to an address.
  if (request.hello.kind !== 'hello' || request.name === null) return deny('direct_tcp')
  if (!request.name.ok)
    return deny(request.name.reason === 'ip_literal' ? 'direct_tcp' : 'bad_authority')
  if (request.hello.ech) return deny('ech_present', 'hello')
  return decideHost(policy, request.name.host, request.port, [443])
}

function decideHttp(policy: Policy, request: EgressRequest & { kind: 'http' }): Decision {
  const { via, target, hostHeader } = request
  if (request.fault !== null) return deny(request.fault)
  if (via === 'direct') {
    if (hostHeader === null) return deny('direct_tcp')
    if (!hostHeader.ok)
      return deny(hostHeader.reason === 'ip_literal' ? 'direct_tcp' : hostHeader.reason)
  }
  const authority = via === 'direct' ? hostHeader : target
  if (authority === null) return deny('bad_request')
  if (!authority.ok) return deny(authority.reason)
  const mismatch = hostHeaderFault(authority, hostHeader)
  if (mismatch !== null) return mismatch
  const decision = decideHost(policy, authority.host, authority.port, [80])
  if (decision.action === 'deny') return decision
  if (!methods.has(request.method)) return deny('method_denied', 'methods')
  return request.upgrade ? deny('upgrade_denied', 'methods') : decision
}
