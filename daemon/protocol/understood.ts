/** Checks what a daemon answered; what can't be read comes from one of another version. */
import type { z } from 'zod'
import { RemoteError } from './errors.ts'
import { zodMessage } from './zod-message.ts'

export function understood<T>(schema: z.ZodType<T>, answer: unknown): T {
  const parsed = schema.safeParse(answer)
  if (parsed.success) return parsed.data
  throw new RemoteError(
    'daemon_protocol',
    'infra',
    `the daemon's answer is not of this version (${zodMessage(parsed.error)}); restart it: \`closedbook down\`, then \`closedbook up\``,
    { cause: parsed.error },
  )
}
