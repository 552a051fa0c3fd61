/**
 * Secrets that we make: a prefix that tells what it is, a public id, and 256 random bits. Only the SHA-256 of the
 * random part is kept; with so much entropy a slow hash would add nothing. Compared in constant time, also where the id
 * is unknown.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'

export type SecretKind = 'token' | 'session' | 'ticket'
const prefixes = { token: 'cbt', session: 'cbs', ticket: 'cbk' } as const satisfies Record<
  SecretKind,
  string
>
const shape = /^(cb[tsk])_([a-z0-9]{12})_([A-Za-z0-9_-]{43})$/

export interface Secret {
  readonly id: string
  /** What its holder shows. */
  readonly text: string
  /** Hex; all that we keep. */
  readonly hash: string
}

const hashOf = (secret: string): string => createHash('sha256').update(secret).digest('hex')

export function newSecret(kind: SecretKind): Secret {
  const letters = 'abcdefghijkmnpqrstuvwxyz23456789'
  const id = Array.from(randomBytes(12), (byte) => letters[byte % 32]).join('')
  const secret = randomBytes(32).toString('base64url')
  return { id, text: `${prefixes[kind]}_${id}_${secret}`, hash: hashOf(secret) }
}

const nobody = hashOf(randomBytes(32).toString('base64url'))

/** The entry whose secret this is, or undefined; `find` is asked with the id. */
export function matching<T extends { readonly hash: string }>(
  kind: SecretKind,
  text: string,
  find: (id: string) => T | undefined,
): T | undefined {
  const [, prefix, id = '', secret = ''] = shape.exec(text) ?? []
  const entry = prefix === prefixes[kind] ? find(id) : undefined
  const equal = timingSafeEqual(
    Buffer.from(hashOf(secret), 'hex'),
    Buffer.from(entry?.hash ?? nobody, 'hex'),
  )
  return equal ? entry : undefined
}
