/**
 * Whether a browser may ask this, before anybody looks at who it is. PURE. The Host header must name us, or a page
 * whose name was pointed at our address would be our own origin (DNS rebinding). An Origin must be ours: the scheme of
 * the door and the very Host that the request has, or one that the operator listed.
 */
import type { IncomingHttpHeaders } from 'node:http'
import type { Door } from './access.ts'

type Network = Extract<Door, { kind: 'network' }>

export type OriginVerdict =
  | { readonly ok: true; readonly origin: string | null }
  | {
      readonly ok: false
      readonly code: 'host_refused' | 'origin_refused'
      readonly message: string
    }

/** The name of `name:port`, lower-case; IPv6 addresses keep their brackets. null for what is no host. */
export function hostName(host: string): string | null {
  const found = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?$/i.exec(host)
  return found?.[1]?.toLowerCase().replace(/\.$/, '') ?? null
}

export function judgeOrigin(headers: IncomingHttpHeaders, door: Network): OriginVerdict {
  const host = headers.host ?? ''
  const name = hostName(host)
  if (name === null || !door.names.has(name))
    return {
      ok: false,
      code: 'host_refused',
      message: `this daemon is not called ${JSON.stringify(host.slice(0, 100))}; add the name to server.names if it is meant`,
    }
  const origin = headers.origin ?? null
  const own = `${door.secure ? 'https' : 'http'}://${host.toLowerCase()}`
  if (origin !== null && origin !== own && !door.origins.has(origin))
    return {
      ok: false,
      code: 'origin_refused',
      message: `pages of ${JSON.stringify(origin.slice(0, 100))} may ask nothing here; add it to server.origins if it is meant`,
    }
  const site = headers['sec-fetch-site']
  const foreign = site !== undefined && site !== 'same-origin' && site !== 'none'
  if (foreign && headers['sec-fetch-mode'] !== 'navigate')
    return {
      ok: false,
      code: 'origin_refused',
      message: 'another site may ask nothing here',
    }
  return { ok: true, origin }
}
