/**
 * What looks like a secret, by its own shape (tokens, private keys) or by the name of the setting that holds it; and
 * proxies. Pure. A secret is never shown whole: a report is passed on.
 */

export interface Secret {
  readonly kind: string
  /** Its first characters. */
  readonly shown: string
  /** Where in the text. */
  readonly index: number
}

interface Shape {
  readonly kind: string
  /** A literal without which the pattern can't match: cheap to look for. */
  readonly anchor: string
  readonly pattern: RegExp
}

const shapes: readonly Shape[] = [
  { kind: 'an AWS access key', anchor: 'AKIA', pattern: /\bAKIA[0-9A-Z]{16}\b/g },
  { kind: 'a temporary AWS key', anchor: 'ASIA', pattern: /\bASIA[0-9A-Z]{16}\b/g },
  ...['ghp_', 'gho_', 'ghu_', 'ghs_', 'ghr_'].map((anchor) => ({
    kind: 'a GitHub token',
    anchor,
    pattern: new RegExp(`\\b${anchor}[A-Za-z0-9]{36,251}\\b`, 'g'),
  })),
  { kind: 'a GitHub token', anchor: 'github_pat_', pattern: /\bgithub_pat_[A-Za-z0-9_]{60,}\b/g },
  { kind: 'a GitLab token', anchor: 'glpat-', pattern: /\bglpat-[A-Za-z0-9_-]{20,}/g },
  { kind: 'a Hugging Face token', anchor: 'hf_', pattern: /\bhf_[A-Za-z0-9]{30,}\b/g },
  {
    kind: 'a model provider key',
    anchor: 'sk-',
    pattern: /(?<![\w-])sk-(?:proj-|ant-|svcacct-|or-v1-)?[A-Za-z0-9_-]{32,}/g,
  },
  { kind: 'a Slack token', anchor: 'xox', pattern: /\bxox[abeprs]-[A-Za-z0-9-]{20,}/g },
  { kind: 'a Google API key', anchor: 'AIza', pattern: /\bAIza[0-9A-Za-z_-]{35}(?![\w-])/g },
  { kind: 'an npm token', anchor: 'npm_', pattern: /\bnpm_[A-Za-z0-9]{36}\b/g },
  { kind: 'a PyPI token', anchor: 'pypi-AgE', pattern: /\bpypi-AgE[A-Za-z0-9_-]{50,}/g },
  { kind: 'a Docker token', anchor: 'dckr_pat_', pattern: /\bdckr_pat_[A-Za-z0-9_-]{24,}/g },
  { kind: 'an NGC key', anchor: 'nvapi-', pattern: /\bnvapi-[A-Za-z0-9_-]{40,}/g },
  {
    kind: 'a private key',
    anchor: 'PRIVATE KEY',
    pattern:
      /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\\n|\s)+(?:[A-Za-z-]+:[^\n]*\n|\s)*[A-Za-z0-9+/=]{40,}/g,
  },
]

export function secretsIn(text: string): Secret[] {
  const found: Secret[] = []
  for (const { kind, anchor, pattern } of shapes) {
    if (!text.includes(anchor)) continue
    for (const match of text.matchAll(pattern)) {
      const value = match[0]
      if (kind !== 'a private key' && !looksRandom(value)) continue
      found.push({ kind, shown: masked(value), index: match.index })
    }
  }
  return found
}

/** Examples in documentation are words, repeats and rows of the alphabet. */
function looksRandom(value: string): boolean {
  if (/example|x{6}|placeholder|your|dummy|fake|redacted|sample|0{8}|1234567|abcdef/i.test(value))
    return false
  const body = value.replace(/^[A-Za-z]+[_-]/, '')
  const kinds = [/[a-z]/, /[A-Z]/, /\d/].filter((kind) => kind.test(body)).length
  return new Set(body).size >= 10 && kinds >= 2
}

const masked = (value: string): string =>
  value.startsWith('-----') ? 'in PEM' : `${value.slice(0, Math.min(8, value.length / 4))}…`

/** Passwords in a URL; for files that configure something, where it is no example. */
export function urlPasswords(text: string): Secret[] {
  if (!text.includes('://')) return []
  return [
    ...text.matchAll(/\b[a-z][a-z0-9+.-]*:\/\/([^\s/:@"'<>{}$]+):([^\s/@"'<>{}$]+)@[\w.-]+/gi),
  ]
    .filter((match) => !isPlaceholder(match[2] ?? ''))
    .map((match) => ({ kind: 'a password in a URL', shown: `of ${match[1]}`, index: match.index }))
}

const secretName =
  /(?:^|_|-)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|AUTH)(?:$|_ID$|_KEY$|_HERE$)/i

/** Whether a setting's name says secret and its value is not empty, a variable or a stand-in. */
export const secretInSetting = (name: string, value: string): boolean =>
  secretName.test(name) && !isPlaceholder(value) && !/_(?:FILE|PATH|URL|TYPE)$/i.test(name)

const isPlaceholder = (value: string): boolean =>
  value.trim() === '' ||
  value.length < 6 ||
  /[${}<>]/.test(value) ||
  /^(?:empty|none|null|true|false|dummy|test(?:ing)?|fake|placeholder|changeme|password|secret|token|unused|not-?needed|sk-?(?:closedbook|test|dummy|xxx+)|x+|\*+|your[-_ ].*|example.*)$/i.test(
    value.trim(),
  ) ||
  /placeholder|example|dummy/i.test(value)

/** A proxy setting that names a host. `NO_PROXY` names none. */
export const proxyIn = (name: string, value: string): boolean =>
  /^(?:https?|all|ftp|socks5?)_proxy$/i.test(name) && value.trim() !== '' && !/[${}]/.test(value)

/** Files that a tool reads its credentials from; what in them is a secret. */
const credentialFiles: readonly (readonly [RegExp, RegExp, string])[] = [
  [/(?:^|\/)[._]netrc$/, /\bpassword\s+(\S+)/g, 'a password in .netrc'],
  [/(?:^|\/)\.npmrc$/, /_(?:authToken|password|auth)\s*=\s*(\S+)/g, 'a credential of npm'],
  [/(?:^|\/)\.pypirc$/, /\bpassword\s*[=:]\s*(\S+)/g, 'a password of PyPI'],
  [/(?:^|\/)\.git-credentials$/, /:\/\/[^:\s]+:([^@\s]+)@/g, 'a credential of git'],
  [/(?:^|\/)\.docker\/config\.json$/, /"auth"\s*:\s*"([^"]+)"/g, 'a registry login'],
  [/(?:^|\/)\.aws\/credentials$/, /aws_secret_access_key\s*=\s*(\S+)/g, 'an AWS secret'],
  [/(?:^|\/)\.(?:cache\/)?huggingface\/token$/, /(\S{8,})/g, 'a Hugging Face token'],
  [
    /(?:^|\/)(?:\.env(?:\.\w+)?|environment|\.bashrc|\.profile|\.bash_profile)$/,
    /^\s*(?:export\s+)?([A-Za-z_]\w*)=(?:"([^"\n]*)"|'([^'\n]*)'|(\S+))/gm,
    'setting',
  ],
]

/** Files that name servers, where a URL with a password is no example. */
const urlFiles =
  /(?:^|\/)(?:\.git\/(?:modules\/.*\/)?config|\.gitconfig|pip\.conf|uv\.toml|\.condarc|sources\.list(?:\.d\/[^/]+)?|auth\.conf(?:\.d\/[^/]+)?|\.wgetrc|\.curlrc)$/

export const holdsCredentials = (path: string): boolean =>
  urlFiles.test(path) || credentialFiles.some(([file]) => file.test(path))

export function credentialsIn(path: string, text: string): Secret[] {
  const found: Secret[] = []
  for (const [file, pattern, kind] of credentialFiles) {
    if (!file.test(path)) continue
    for (const match of text.matchAll(pattern)) {
      const value = match[4] ?? match[3] ?? match[2] ?? match[1] ?? ''
      if (kind === 'setting') {
        if (secretInSetting(match[1] ?? '', value))
          found.push({ kind: 'a secret', shown: `in ${match[1]}`, index: match.index })
      } else if (!isPlaceholder(value)) found.push({ kind, shown: '', index: match.index })
    }
  }
  return found
}

/** Files whose lines set a proxy for a tool, and how. */
export const proxyFile =
  /^(?:etc\/(?:environment|profile|bash\.bashrc|wgetrc|pip\.conf|gitconfig|npmrc|curlrc)|etc\/(?:profile\.d|apt\/apt\.conf\.d)\/[^/]+|etc\/apt\/apt\.conf|(?:root|home\/[^/]+)\/\.(?:bashrc|profile|bash_profile|gitconfig|curlrc|wgetrc|npmrc|condarc|config\/pip\/pip\.conf|pip\/pip\.conf|docker\/config\.json))$/

export function proxyLines(text: string): number[] {
  return text.split('\n').flatMap((line, index) => {
    if (/^\s*(?:#|\/\/|;)/.test(line)) return []
    const names =
      /^\s*(?:export\s+)?(?:https?|all|ftp)_proxy\s*[=:]\s*["']?[^\s"']/i.test(line) ||
      /Acquire::(?:https?|ftp)::Proxy\s+"(?!DIRECT)[^"]+"/i.test(line) ||
      /^\s*"?(?:https?-?[pP]roxy|proxy)"?\s*[=:]\s*"?\S/.test(line)
    return names ? [index + 1] : []
  })
}

export const lineAt = (text: string, index: number): number => {
  let line = 1
  for (let at = text.indexOf('\n'); at !== -1 && at < index; at = text.indexOf('\n', at + 1))
    line += 1
  return line
}
