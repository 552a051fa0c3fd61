/**
 * The policy document of one lease: what its sandbox may reach. Strict: an unknown key is an error, and a
 * host must be written in its canonical form, so that what a person reads is what is enforced.
 */
import { z } from 'zod'
import { canonicalHostPattern } from './host.ts'
import { huggingFaceSchema } from './hugging-face.ts'
import { auditPolicySchema, limitsSchema } from './limits.ts'

const hostPattern = z.string().superRefine((text, context) => {
  const result = canonicalHostPattern(text)
  if (!result.ok) context.addIssue({ code: 'custom', message: result.message })
})

export const policySchema = z.strictObject({
  version: z.literal(1),
  mode: z.literal('closed-book').default('closed-book'),
  connect: z
    .strictObject({
      allow: z
        .array(hostPattern)
        .max(256)
        .default([])
        .describe(
          'hosts that the proxy may connect to: an exact name, or *.name for its subdomains',
        ),
      deny: z.array(hostPattern).max(256).default([]).describe('hosts refused whatever allow says'),
      ports: z.array(z.literal([80, 443])).default([443]),
    })
    .prefault({}),
  huggingface: huggingFaceSchema
    .optional()
    .describe('model artifacts that may be read; absent: none, and nothing listens'),
  limits: limitsSchema.optional().describe('caps of what goes through the proxy'),
  audit: auditPolicySchema.optional().describe('caps of the audit log'),
})

export type Policy = z.infer<typeof policySchema>

/** The policy of a lease that was given none: nothing is allowed. */
export const nothingAllowed: Policy = policySchema.parse({ version: 1 })
