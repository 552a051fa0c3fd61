/** How this daemon's leases resolve names, dial, and record what they do, from its configuration. */
import type { DaemonConfig } from './config.ts'
import { aggregateRules } from './egress/audit-aggregate.ts'
import { dialTcp, systemResolver } from './egress/dial.ts'
import type { EgressOptions } from './egress/egress.ts'
import { Gate } from './egress/limits.ts'
import type { Dial, Resolve } from './egress/route.ts'

export type EgressSettings = Pick<EgressOptions, 'resolve' | 'dial' | 'gate' | 'auditRules'> & {
  readonly vet?: (address: string) => boolean
}

/** Tunnels and requests under way in all leases together. */
const concurrentInAll = 1024

export function egressSettings({ egress, audit }: DaemonConfig): EgressSettings {
  const table = new Map(Object.entries(egress.hosts).map(([host, target]) => [host, parse(target)]))
  const system = systemResolver()
  const resolve: Resolve = async (host, options) => {
    const known = table.get(host)
    return known === undefined ? system(host, options) : [known.address]
  }
  const dial: Dial = (target, options) => {
    const known = table.get(target.host)
    return dialTcp(
      known === undefined ? target : { ...target, port: known.port ?? target.port },
      options,
    )
  }
  return {
    resolve,
    dial,
    gate: new Gate(concurrentInAll),
    auditRules: { maxBytes: audit.maxBytesPerLease, aggregate: aggregateRules },
    ...(egress.allowPrivateAddresses ? { vet: () => true } : {}),
  }
}

function parse(target: string): { address: string; port?: number } {
  const match = /^(\[[0-9a-f:]+\]|[0-9.]+)(?::(\d{1,5}))?$/.exec(target)
  const address = (match?.[1] ?? target).replace(/^\[|\]$/g, '')
  return match?.[2] === undefined ? { address } : { address, port: Number(match[2]) }
}
