/** The name of a policy: SHA-256 over its canonical JSON (keys sorted, no white space), 64 hex digits. */
import { createHash } from 'node:crypto'
import type { Policy } from './policy.ts'

export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  if (value === null || typeof value !== 'object') return JSON.stringify(value)
  const entries = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member)}`).join(',')}}`
}

/** A section that sets nothing is as good as none. */
export function policyHash({ limits = {}, audit, ...policy }: Policy): string {
  const set = {
    ...policy,
    ...(Object.values(limits).some((value) => value !== undefined) ? { limits } : {}),
    ...(audit?.maxBytes === undefined ? {} : { audit }),
  }
  return createHash('sha256').update(canonicalJson(set)).digest('hex')
}
