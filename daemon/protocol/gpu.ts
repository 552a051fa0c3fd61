/** What `GET /v1/gpus` tells: every GPU of the host, its state and why, and whether this host may lend any. */
import { z } from 'zod'

/** `dirty` clears by itself at the next look; `quarantined` stays so for a while and is then looked at again. */
export const gpuStates = ['free', 'leased', 'dirty', 'quarantined'] as const
export type GpuState = (typeof gpuStates)[number]

export const gpuViewSchema = z.strictObject({
  uuid: z.string(),
  name: z.string(),
  busId: z.string(),
  driver: z.string(),
  memoryBytes: z.int(),
  memoryUsedBytes: z.int(),
  /** null where the GPU has no MIG, no ECC. */
  mig: z.enum(['on', 'off']).nullable(),
  eccUncorrected: z.int().nullable(),
  computeMode: z.string(),
  state: z.enum(gpuStates),
  /** Why it isn't free; for a leased GPU a fault that was seen meanwhile. */
  reason: z.string().nullable(),
  lease: z.string().nullable(),
  since: z.string(),
  probedAt: z.string().nullable(),
})
export type GpuView = z.infer<typeof gpuViewSchema>

export const gpuReportSchema = z.strictObject({
  /** The nvidia-smi that is asked; null: this host has none, or lends nothing by configuration. */
  smi: z.string().nullable(),
  /** How the engine is asked for a GPU; null where it can't be. */
  mode: z.enum(['nvidia', 'cdi']).nullable(),
  toolkit: z.string().nullable(),
  /** Why no GPU is lent here, whatever their states. */
  refusal: z.string().nullable(),
  gpus: z.array(gpuViewSchema),
})
export type GpuReport = z.infer<typeof gpuReportSchema>
