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

export const policyHash = (policy: Policy): string =>
  createHash('sha256').update(canonicalJson(policy)).digest('hex')
