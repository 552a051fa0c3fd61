/**
 * Serves the dashboard. The pages hold no data, so anyone may have them; what they show comes by the API, with a
 * session. The policy lets a page run our scripts alone, talk to us alone, and be framed by nobody; markup from strings
 * is refused by the browser itself (trusted types). Styles may be inline: xterm.js colours its cells so.
 */
import type { Call, Router } from '../router.ts'
import { Assets, type Asset } from './assets.ts'

const pages = [
  '/',
  '/hosts',
  '/jobs',
  '/jobs/:job',
  '/jobs/:job/trials/:trial',
  '/trials/:trial',
  '/audit',
]

export const pagePolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

const headers = {
  'content-security-policy': pagePolicy,
  'cross-origin-opener-policy': 'same-origin',
  'permissions-policy': 'camera=(), microphone=(), geolocation=(), clipboard-read=()',
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  // what has changed is asked for by its digest
  'cache-control': 'no-cache',
} as const

export function addWebRoutes(router: Router): void {
  const assets = new Assets()
  for (const page of pages)
    router.on(
      'GET',
      page,
      { role: 'anyone', summary: 'the dashboard', type: 'text/html' },
      (call) => send(call, assets, '/index.html'),
    )
  for (const at of assets.paths)
    router.on(
      'GET',
      at,
      { role: 'anyone', summary: 'a file of the dashboard', type: 'text/html' },
      (call) => send(call, assets, at),
    )
  router.on('GET', '/favicon.ico', { role: 'anyone', summary: 'the dashboard' }, (call) =>
    send(call, assets, '/app/icon.svg'),
  )
}

async function send({ request, response }: Call, assets: Assets, at: string): Promise<void> {
  const asset: Asset = await assets.get(at)
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
  response.setHeader('etag', asset.etag).setHeader('vary', 'accept-encoding')
  if (request.headers['if-none-match'] === asset.etag) return void response.writeHead(304).end()
  const packed = /\bgzip\b/.test(request.headers['accept-encoding']?.toString() ?? '')
  const body = packed ? asset.gzip : asset.plain
  response.writeHead(200, {
    'content-type': asset.type,
    'content-length': body.length,
    ...(packed ? { 'content-encoding': 'gzip' } : {}),
  })
  response.end(body)
}
