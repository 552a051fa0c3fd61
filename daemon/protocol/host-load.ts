/** `GET /v1/host/load`: what the host has left, as of now. */
import { z } from 'zod'

export const hostLoadSchema = z.strictObject({
  disks: z.array(z.strictObject({ path: z.string(), bytes: z.int(), freeBytes: z.int() })),
  memoryBytes: z.int(),
  freeMemoryBytes: z.int(),
  /** Average of the last minute. */
  load: z.number(),
  cpus: z.int(),
  uptimeSeconds: z.int(),
})
export type HostLoad = z.infer<typeof hostLoadSchema>
