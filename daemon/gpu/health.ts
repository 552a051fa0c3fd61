/**
 * Whether a GPU may be lent, from what was read of it. Pure. `dirty` is what goes away without anybody's doing: memory
 * or processes that somebody still has there. `quarantined` is what somebody has to look at. MIG and compute mode are
 * found and told, never changed: that needs an idle GPU and is the operator's.
 */
import type { GpuReading } from './inventory.ts'

export interface Unfit {
  readonly state: 'dirty' | 'quarantined'
  readonly reason: string
}

export interface HealthLimits {
  readonly memoryFloorBytes: number
}

/** null: fit to be lent. */
export function judge(gpu: GpuReading, limits: HealthLimits): Unfit | null {
  const fault = faultOf(gpu)
  if (fault !== null) return { state: 'quarantined', reason: fault }
  if (gpu.mig === 'on')
    return quarantined('MIG is on, and only whole GPUs are lent; turn it off: nvidia-smi -mig 0')
  if (gpu.computeMode !== 'Default')
    return quarantined(
      `its compute mode is ${gpu.computeMode}, with which servers of several processes fail; set it back: nvidia-smi -c 0`,
    )
  if (gpu.pids.length > 0)
    return {
      state: 'dirty',
      reason: `process ${gpu.pids.join(', ')} of the host computes on it; end it, or keep this GPU from Closedbook`,
    }
  if (gpu.memoryUsedBytes > limits.memoryFloorBytes)
    return {
      state: 'dirty',
      reason: `${mebi(gpu.memoryUsedBytes)} MiB of its memory are in use, and an empty one has at most ${mebi(limits.memoryFloorBytes)}`,
    }
  return null
}

/** A fault that also takes a GPU from who has it: what was computed on it can't be believed. */
export function faultOf({ eccUncorrected, remap }: GpuReading): string | null {
  if (eccUncorrected !== null && eccUncorrected > 0)
    return `${eccUncorrected} uncorrectable memory errors since its driver was loaded; reset it (nvidia-smi --gpu-reset) and look for rows that can't be remapped`
  if (remap?.failed === true)
    return 'a faulty row of its memory could not be remapped; it has to be replaced'
  return null
}

const quarantined = (reason: string): Unfit => ({ state: 'quarantined', reason })
const mebi = (bytes: number): number => Math.round(bytes / 1024 ** 2)
