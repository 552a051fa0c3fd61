/**
 * How package clients reach their index during a build step on this machine: its certificate authorities and its pip
 * settings. They go into the build stage as files and never into a final image, nor into a recipe's hash.
 */
import { existsSync, readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'

type Environment = Readonly<Record<string, string | undefined>>

const bundleFiles = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
]
const bundleVariables = ['PIP_CERT', 'SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE']
const pipKeys = [
  'index-url',
  'extra-index-url',
  'trusted-host',
  'proxy',
  'timeout',
  'default-timeout',
  'retries',
]
const proxyVariables = ['http_proxy', 'https_proxy', 'ftp_proxy', 'no_proxy', 'all_proxy']

/** The machine's CA bundle, or Node's own where the machine has none. */
export function caBundle(env: Environment): string {
  const named = bundleVariables.map((name) => env[name])
  for (const file of [...named, ...bundleFiles])
    if (file !== undefined && file !== '' && existsSync(file)) return readFileSync(file, 'utf8')
  return `${rootCertificates.join('\n')}\n`
}

/** A pip.conf of the keys that decide where pip goes: configuration files first, then the environment. */
export function pipConfig(env: Environment, files: readonly string[] = pipFiles(env)): string {
  const values = new Map<string, string>()
  for (const file of files)
    if (existsSync(file))
      for (const [key, value] of globalSection(readFileSync(file, 'utf8'))) values.set(key, value)
  for (const key of pipKeys) {
    const value = env[`PIP_${key.toUpperCase().replaceAll('-', '_')}`]
    if (value !== undefined && value.trim() !== '') values.set(key, value.trim())
  }
  const lines = [...values].map(
    ([key, value]) => `${key} = ${value.trim().split(/\s+/).join('\n    ')}`,
  )
  return ['[global]', 'disable-pip-version-check = true', ...lines, ''].join('\n')
}

/** Proxies of this machine as build arguments; the engine keeps these names out of an image's history. */
export function proxyArguments(env: Environment): Record<string, string> {
  const found: Record<string, string> = {}
  for (const lower of proxyVariables)
    for (const name of [lower, lower.toUpperCase()]) {
      const value = env[name]
      if (value !== undefined && value !== '') found[name] = value
    }
  return found
}

function pipFiles(env: Environment): readonly string[] {
  const home = env['HOME'] ?? homedir()
  return [
    '/etc/pip.conf',
    join(home, '.pip/pip.conf'),
    join(env['XDG_CONFIG_HOME'] ?? join(home, '.config'), 'pip/pip.conf'),
    env['PIP_CONFIG_FILE'] ?? '',
  ]
}

function* globalSection(text: string): Generator<[key: string, value: string]> {
  let inside = false
  let open: [string, string] | undefined
  for (const line of text.split(/\r?\n/)) {
    if (/^\s*([#;]|$)/.test(line)) continue
    const continued = /^\s+(\S.*)$/.exec(line)
    if (continued !== null && open !== undefined) {
      open[1] += ` ${continued[1] ?? ''}`
      continue
    }
    if (open !== undefined) yield open
    open = undefined
    const section = /^\[([^\]]+)\]/.exec(line)
    if (section !== null) inside = section[1] === 'global' || section[1] === 'install'
    const pair = /^([a-z-]+)\s*[=:]\s*(.*)$/.exec(line)
    const key = pair?.[1]
    if (inside && key !== undefined && pipKeys.includes(key)) open = [key, (pair?.[2] ?? '').trim()]
  }
  if (open !== undefined) yield open
}
