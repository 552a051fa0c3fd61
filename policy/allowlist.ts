/**
 * Host names against the patterns of a policy: `name` is that name alone, `*.name` every name below it but not
 * itself. Deny wins over allow. Both sides are canonical (host.ts), so comparing is comparing strings.
 */
export interface HostRules {
  readonly allow: readonly string[]
  readonly deny: readonly string[]
}

export type HostMatch =
  | { readonly action: 'allow'; readonly rule: string }
  | { readonly action: 'deny'; readonly reason: 'denied_host'; readonly rule: string }
  | { readonly action: 'deny'; readonly reason: 'not_allowed_host'; readonly rule: 'default' }

export function matchesPattern(pattern: string, host: string): boolean {
  if (!pattern.startsWith('*.')) return pattern === host
  return host.length > pattern.length - 1 && host.endsWith(pattern.slice(1))
}

export function matchHost(rules: HostRules, host: string): HostMatch {
  const denied = rules.deny.find((pattern) => matchesPattern(pattern, host))
  if (denied !== undefined) return { action: 'deny', reason: 'denied_host', rule: `deny ${denied}` }
  const allowed = rules.allow.find((pattern) => matchesPattern(pattern, host))
  if (allowed !== undefined) return { action: 'allow', rule: `allow ${allowed}` }
  return { action: 'deny', reason: 'not_allowed_host', rule: 'default' }
}
