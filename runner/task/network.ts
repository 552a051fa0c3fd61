/**
 * What network a Harbor task asks for. Its own default is the public one, for every phase that says nothing else. A
 * sealed trial gives none of it, so it is run only where the operator says so, and the result says it too. Pure.
 */
import type { TaskToml } from './schema.ts'

export interface NetworkAsked {
  readonly mode: 'public' | 'allowlist'
  readonly hosts: readonly string[]
  /** The key that asks, or would have to say otherwise. */
  readonly key: string
  readonly stated: boolean
}

type Mode = 'public' | 'no-network' | 'allowlist'

interface Said {
  readonly network_mode?: Mode | undefined
  readonly allowed_hosts?: readonly string[] | undefined
  readonly allow_internet?: boolean | undefined
}

const modeOf = ({ network_mode, allowed_hosts, allow_internet }: Said): Mode | undefined => {
  if (network_mode !== undefined) return network_mode
  if ((allowed_hosts ?? []).length > 0) return 'allowlist'
  return allow_internet === false ? 'no-network' : undefined
}

/** The first phase that asks for more than nothing; null where none does. */
export function networkAsked({ environment, agent, verifier }: TaskToml): NetworkAsked | null {
  const baseline = modeOf(environment)
  const phases: readonly (readonly [string, Said])[] = [
    ['environment', environment],
    ['agent', agent],
    ['verifier', verifier],
    ...(verifier.environment === undefined
      ? []
      : [['verifier.environment', verifier.environment] as const]),
  ]
  for (const [table, said] of phases) {
    const mode = modeOf(said) ?? (table === 'environment' ? (baseline ?? 'public') : 'no-network')
    if (mode === 'no-network') continue
    const stated = modeOf(said) !== undefined
    const key =
      mode === 'allowlist' && said.network_mode === undefined ? 'allowed_hosts' : 'network_mode'
    return { mode, hosts: said.allowed_hosts ?? [], key: `${table}.${key}`, stated }
  }
  return null
}
