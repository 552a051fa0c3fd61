/** Containers that have GPUs and are of no open lease: the engine itself never leases a GPU, and gives it to any number. */
import type { Engine } from '../engine/engine.ts'

export interface Holder {
  readonly name: string
  readonly deviceIds: readonly string[]
}

type Labels = Readonly<Record<string, string>>

const live: ReadonlySet<string> = new Set(['running', 'paused', 'restarting'])

export async function otherHolders(
  engine: Engine,
  isOwners: (labels: Labels) => boolean,
  monitors: readonly string[],
): Promise<Holder[]> {
  const containers = await engine.listContainers({}, { skip: isOwners })
  return containers.filter(
    ({ status, deviceIds, name }) =>
      deviceIds.length > 0 && live.has(status) && !monitors.includes(name),
  )
}

/** Who has that GPU; a request by number or for all may mean any. */
export function holderOf(uuid: string, holders: readonly Holder[]): Holder | null {
  const names = (id: string): boolean => {
    const device = id.replace(/^nvidia\.com\/gpu=/, '')
    return device === uuid || (!device.startsWith('GPU-') && !device.includes('/'))
  }
  return holders.find(({ deviceIds }) => deviceIds.some(names)) ?? null
}
