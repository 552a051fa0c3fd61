/** What only the operator may decide about a Harbor task: that it runs closed, and which variables of the host it gets. */
import { z } from 'zod'

export const harborOptionsSchema = z.strictObject({
  network: z
    .literal('closed-book')
    .optional()
    .describe(
      'tasks that ask for the public network, or for hosts of their own, run sealed all the same',
    ),
  hostEnv: z
    .array(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'must be the name of a variable'))
    .default([])
    .describe('variables of this host that a task may take into its containers by ${NAME}'),
})
export type HarborOptions = z.infer<typeof harborOptionsSchema>

export interface LoadOptions {
  readonly harbor?: HarborOptions
  /** Of a task that doesn't say its own; default: the directory's. */
  readonly name?: string
  /** Where the variables that the operator allows are read; default: the process's. */
  readonly env?: Readonly<Record<string, string | undefined>>
}
