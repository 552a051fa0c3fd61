/**
 * Where a daemon is and how one speaks to it: its unix socket on this host, or an address with a token. A token goes
 * over TLS, or to loopback (a tunnel), and nowhere else. A daemon with a certificate of its own is known by a CA file.
 */
import http from 'node:http'
import https from 'node:https'
import { Agent } from 'undici'
import { RemoteError } from './errors.ts'

export interface SocketTarget {
  readonly socketPath: string
}

export interface UrlTarget {
  /** `https://host:port`; `http:` on loopback alone. */
  readonly url: string
  readonly token: string
  /** Certificates that are trusted instead of the system's, PEM. */
  readonly ca?: string
}

export type DaemonTarget = SocketTarget | UrlTarget

/** Throws `bad_request` for an address that a token may not be sent to. */
export function checkTarget(target: DaemonTarget): DaemonTarget {
  if ('socketPath' in target) return target
  const url = URL.parse(target.url)
  if (url === null || !/^https?:$/.test(url.protocol) || url.pathname !== '/' || url.search !== '')
    throw wrong(`${JSON.stringify(target.url)} is no address of a daemon: write https://host:port`)
  if (url.username !== '' || url.password !== '')
    throw wrong('the address of a daemon has no user or password; give a token')
  const loopback = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname)
  if (url.protocol === 'http:' && !loopback)
    throw wrong(
      `a token would go to ${url.hostname} where everybody can read it; use https, or a tunnel to loopback`,
    )
  if (!/^[\x21-\x7e]+$/.test(target.token)) throw wrong('the token is empty or no token')
  return target
}

const wrong = (message: string): RemoteError => new RemoteError('bad_request', 'operator', message)

/** For people. */
export const targetName = (target: DaemonTarget): string =>
  'socketPath' in target ? target.socketPath : originOf(target)

export const originOf = (target: DaemonTarget): string =>
  'socketPath' in target ? 'http://daemon' : new URL(target.url).origin

export const credentialsOf = (target: DaemonTarget): Record<string, string> =>
  'socketPath' in target ? {} : { authorization: `Bearer ${target.token}` }

export function agentOf(target: DaemonTarget): Agent {
  const patient = { headersTimeout: 0, bodyTimeout: 0 }
  if ('socketPath' in target)
    return new Agent({ connect: { socketPath: target.socketPath }, ...patient })
  return new Agent({ connect: target.ca === undefined ? {} : { ca: target.ca }, ...patient })
}

/** One request on a connection of its own, for what will be upgraded. */
export function requestOf(
  target: DaemonTarget,
  options: { readonly method: string; readonly path: string; readonly headers?: object },
): http.ClientRequest {
  const { method, path } = options
  const headers = { ...credentialsOf(target), ...options.headers }
  if ('socketPath' in target)
    return http.request({ socketPath: target.socketPath, method, path, headers, agent: false })
  const url = new URL(target.url)
  const { port } = url
  const common = {
    host: url.hostname.replace(/^\[|\]$/g, ''),
    ...(port === '' ? {} : { port }),
    ...{ method, path, headers, agent: false as const },
  }
  return url.protocol === 'https:'
    ? https.request({ ...common, ...(target.ca === undefined ? {} : { ca: target.ca }) })
    : http.request(common)
}

/** What `new WebSocket(address, protocol, options)` of the package ws takes. */
export function webSocketAddress(
  target: DaemonTarget,
  path: string,
): { address: string; options: { headers: Record<string, string>; ca?: string } } {
  const headers = credentialsOf(target)
  if ('socketPath' in target)
    return { address: `ws+unix:${target.socketPath}:${path}`, options: { headers } }
  return {
    address: `${originOf(target).replace(/^http/, 'ws')}${path}`,
    options: { headers, ...(target.ca === undefined ? {} : { ca: target.ca }) },
  }
}
