/** An object is named by the digest of its bytes, as the Hub names them: SHA-256 for large files, git's SHA-1 for small. */
import { createHash, type Hash } from 'node:crypto'

export interface ObjectName {
  readonly algorithm: 'sha256' | 'git-sha1'
  /** Lower case: 64 or 40 digits. */
  readonly hex: string
  readonly size: number
}

const keyPattern = /^(?:sha256-[0-9a-f]{64}|git-sha1-[0-9a-f]{40})$/

export const isObjectKey = (text: string): boolean => keyPattern.test(text)

/** The object's name as a file name. Throws on what is no digest: it becomes part of a path. */
export function objectKey({ algorithm, hex }: ObjectName): string {
  const key = `${algorithm}-${hex}`
  if (!isObjectKey(key)) throw new Error(`not a digest: ${JSON.stringify(key.slice(0, 100))}`)
  return key
}

/** To be fed with the bytes of the object. */
export function hasherOf({ algorithm, size }: ObjectName): Hash {
  if (algorithm === 'sha256') return createHash('sha256')
  return createHash('sha1').update(`blob ${size}\0`)
}
