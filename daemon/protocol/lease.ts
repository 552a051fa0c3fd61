/** What crosses the lease API. Sizes in bytes, times in ms unless the name says otherwise, instants in ISO 8601. */
import { z } from 'zod'
import { policySchema } from '../../policy/policy.ts'

export const leaseStates = [
  'admitted',
  'creating',
  'sealing',
  'proving',
  'ready',
  'frozen',
  'closing',
  'closed',
] as const
export type LeaseState = (typeof leaseStates)[number]

/**
 * Prices of one model in US dollars per million tokens. A missing cached rate is an error, not zero. Tokens written to
 * the provider's cache cost the input rate unless they have a rate of their own.
 */
export const priceSchema = z.strictObject({
  inputPerMillionUsd: z.number().nonnegative(),
  cachedInputPerMillionUsd: z.number().nonnegative().describe('input read from the cache'),
  cacheWriteInputPerMillionUsd: z
    .number()
    .nonnegative()
    .optional()
    .describe('input written to the cache; must be said where the upstream is of kind anthropic'),
  outputPerMillionUsd: z.number().nonnegative(),
  asOf: z.iso.date().optional().describe('day on which these were the prices'),
  source: z.string().min(1).max(500).optional().describe('where they were read'),
  estimate: z
    .boolean()
    .optional()
    .describe('not what was paid, but what a host of these open weights would take'),
})
export type Price = z.infer<typeof priceSchema>

/** Where an API bills what it writes to its cache, a price without that rate would be wrong for every call. */
export const lacksCacheWritePrice = (spec: { upstream: { kind: string }; price: Price }): boolean =>
  spec.upstream.kind === 'anthropic' && spec.price.cacheWriteInputPerMillionUsd === undefined

/** Without what would be left out of requests in silence, or shown in logs. */
export const providerUrlSchema = z
  .url({ protocol: /^https?$/ })
  .refine(
    (url) => /^https?:\/\/[^/?#@]+(?:\/[^?#]*)?$/.test(url),
    'may have no user, password, query or fragment; the key is given apart',
  )

export const modelGatewaySchema = z
  .strictObject({
    upstream: z.discriminatedUnion('kind', [
      z.strictObject({
        /** Chat completions and responses. */
        kind: z.literal('openai'),
        /** Up to and without `/chat/completions`, e.g. https://host/v1 */
        baseUrl: providerUrlSchema,
        /** Write-only: held in the daemon's memory, never stored, logged or shown. */
        apiKey: z.string().min(1),
      }),
      z.strictObject({
        /** Messages and the token counter. */
        kind: z.literal('anthropic'),
        /** Up to and without `/messages`, e.g. https://host/v1 */
        baseUrl: providerUrlSchema,
        /** Write-only, as above. */
        apiKey: z.string().min(1),
      }),
      z.strictObject({
        kind: z.literal('replay'),
        /** A bundle that holds the recording, and its path in it. */
        bundle: z.string(),
        path: z.string(),
      }),
    ]),
    /** The only model name that is passed on; another name in a request is refused. */
    model: z.string().min(1),
    /** Pinned: a request that names one of these must name this value. */
    parameters: z.record(z.string(), z.json()).default({}),
    price: priceSchema,
    budget: z
      .strictObject({
        calls: z.int().positive().optional(),
        outputTokens: z.int().positive().optional(),
        totalTokens: z.int().positive().optional(),
        costUsd: z.number().positive().optional(),
      })
      .prefault({}),
    record: z.boolean().default(true),
    /** The upstream must send its next byte within this. */
    upstreamTimeoutMs: z.int().positive().default(600_000),
  })
  .refine((spec) => !lacksCacheWritePrice(spec), {
    path: ['price', 'cacheWriteInputPerMillionUsd'],
    message: 'is missing; an upstream of kind anthropic bills it',
  })
export type ModelGatewaySpec = z.infer<typeof modelGatewaySchema>

const resourceLimits = {
  cpus: z.number().positive().describe('CPUs; parts of one may be asked for'),
  memoryBytes: z
    .int()
    .min(16 * 1024 * 1024)
    .describe('memory, swap included; beyond it the kernel kills'),
  pids: z.int().min(16).max(65536).describe('processes and threads'),
  shmBytes: z.int().min(0).describe('size of /dev/shm'),
  diskBytes: z
    .int()
    .positive()
    .describe(
      "bytes the sandbox may add to its file system, watched; absent: the daemon's default",
    ),
}

export const resourcesSchema = z.strictObject({
  cpus: resourceLimits.cpus.default(1),
  memoryBytes: resourceLimits.memoryBytes.default(2 * 1024 ** 3),
  pids: resourceLimits.pids.default(1024),
  shmBytes: resourceLimits.shmBytes.default(64 * 1024 * 1024),
  diskBytes: resourceLimits.diskBytes.optional(),
})
/** What is not said is left to somebody else, so there are no defaults. */
export const someResourcesSchema = z.strictObject(resourceLimits).partial()
export type Resources = z.infer<typeof resourcesSchema>

export const mountSchema = z.strictObject({
  /** A bundle (read-only tree brought by the caller); its sha256. */
  bundle: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'a bundle is named by the 64 hex digits of its sha256'),
  target: z.string().regex(/^\/[^\0]*[^/\0]$/, 'an absolute path without a trailing slash'),
})

export const allowedCapabilities = [
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'SETGID',
  'SETUID',
  'SYS_PTRACE',
] as const

export const leaseRequestSchema = z.strictObject({
  /** Chosen by the caller, so that a retried request is the same lease; absent: the daemon chooses. */
  id: z
    .string()
    .regex(/^[a-z0-9]{12,32}$/, '12 to 32 of a-z and 0-9')
    .optional(),
  /** `name@sha256:…` or an image id `sha256:…`; a tag is refused. */
  image: z.string().min(1),
  /** `sealed`: listeners, census, proof. `offline`: only `lo`, nothing listens. */
  network: z.enum(['sealed', 'offline']).default('sealed'),
  policy: policySchema.prefault({ version: 1 }),
  model: modelGatewaySchema.optional(),
  /** The lease whose exec API this sandbox may use (a harness beside its task). */
  execInto: z.string().optional(),
  hostname: z
    .string()
    .regex(/^[a-z0-9][a-z0-9-]{0,30}$/)
    .default('sandbox'),
  user: z.string().optional(),
  workdir: z.string().optional(),
  env: z.record(z.string(), z.string()).default({}),
  capabilities: z.array(z.enum(allowedCapabilities)).default([]),
  resources: resourcesSchema.prefault({}),
  gpus: z.int().min(0).max(16).default(0),
  mounts: z.array(mountSchema).max(16).default([]),
  owner: z.string().max(200).default('anonymous'),
  trial: z.string().max(200).optional(),
  /** The lease is closed when nobody has renewed it for so long. */
  ttlSeconds: z
    .int()
    .min(10)
    .max(7 * 86_400)
    .default(8 * 3600),
})
export type LeaseRequest = z.infer<typeof leaseRequestSchema>
export type LeaseRequestInput = z.input<typeof leaseRequestSchema>

/** One canary: what was tried from inside, what had to happen, what did, and whether the audit has it. */
export const canaryResultSchema = z.strictObject({
  canary: z.string(),
  expected: z.string(),
  seen: z.string(),
  /** null where the attempt leaves no trace by nature (refused by the kernel before any packet). */
  audited: z.boolean().nullable(),
  ok: z.boolean(),
})
export type CanaryResult = z.infer<typeof canaryResultSchema>

export const leaseViewSchema = z.strictObject({
  lease: z.string(),
  state: z.enum(leaseStates),
  image: z.string(),
  network: z.enum(['sealed', 'offline']),
  owner: z.string(),
  trial: z.string().nullable(),
  policyHash: z.string(),
  createdAt: z.string(),
  expiresAt: z.string(),
  /** Why it is closing or closed, for people. */
  reason: z.string().nullable(),
  /** The daemon was restarted, and waits to be told of the model again: it keeps no key. */
  awaitsModel: z.boolean().default(false),
  proof: z.strictObject({
    before: z.array(canaryResultSchema),
    after: z.array(canaryResultSchema),
  }),
  resources: resourcesSchema,
  gpus: z.array(z.strictObject({ uuid: z.string(), name: z.string() })),
  /** The lease whose sandbox this one works in: it is a harness. */
  execInto: z.string().optional(),
  /** A person ran a command in this sandbox of a trial: recorded, never scored. */
  assisted: z.boolean(),
  /** Time of each phase of opening. */
  timingsMs: z.record(z.string(), z.number()),
})
export type LeaseView = z.infer<typeof leaseViewSchema>

/** Read from the cgroup and the engine when the sandbox is frozen. */
export const freezeReportSchema = z.strictObject({
  killed: z.int(),
  rounds: z.int(),
  empty: z.boolean(),
  oomKills: z.int(),
  pidsLimitHits: z.int(),
  memoryPeakBytes: z.int().nullable(),
  cpuMs: z.number().nullable(),
  diskUsedBytes: z.int().nullable(),
  diskLimitHit: z.boolean(),
})
export type FreezeReport = z.infer<typeof freezeReportSchema>

/**
 * Metered by the model gateway from the upstream's `usage`, never from the harness. The same in all APIs: `inputTokens`
 * is the whole prompt, what was read from the cache (`cachedInputTokens`) and what was written to it
 * (`cacheWriteInputTokens`) included; `outputTokens` is the whole answer, reasoning included.
 */
export const usageSchema = z.strictObject({
  inputTokens: z.int(),
  cachedInputTokens: z.int(),
  cacheWriteInputTokens: z.int().optional(),
  outputTokens: z.int(),
  reasoningTokens: z.int(),
  /** Model calls that were answered; counting tokens is none. */
  calls: z.int(),
  /** Calls the gateway refused (budget, policy) and calls the provider failed. */
  refusedCalls: z.int(),
  failedCalls: z.int(),
  costUsd: z.number(),
  /** The last provider or replay fault, null if there was none since the last good answer. */
  fault: z
    .strictObject({ code: z.string(), message: z.string(), status: z.int().nullable() })
    .nullable(),
  budgetSpent: z.boolean(),
})
export type Usage = z.infer<typeof usageSchema>

/** One path of a sandbox that differs from its image. */
export const fileChangeSchema = z.strictObject({
  path: z.string(),
  kind: z.enum(['added', 'modified', 'deleted']),
})
export type FileChange = z.infer<typeof fileChangeSchema>

export const egressSummarySchema = z.strictObject({
  attempts: z.int(),
  denied: z.int(),
  allowed: z.int(),
  byReason: z.record(z.string(), z.int()),
})
export type EgressSummary = z.infer<typeof egressSummarySchema>

/** One entry of a lease's event stream: what the agent did, as we saw it. */
export const leaseEventSchema = z.strictObject({
  seq: z.int().positive(),
  time: z.string(),
  lease: z.string(),
  event: z.discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('state'),
      state: z.enum(leaseStates),
      reason: z.string().nullable(),
    }),
    z.strictObject({
      type: z.literal('exec.start'),
      exec: z.string(),
      argv: z.array(z.string()),
      label: z.string().nullable(),
    }),
    z.strictObject({
      type: z.literal('exec.end'),
      exec: z.string(),
      exit: z.unknown(),
      cause: z.string(),
      durationMs: z.number(),
      outputBytes: z.int(),
      /** First and last 4 KiB of the output, UTF-8 with replacement. */
      head: z.string(),
      tail: z.string(),
    }),
    z.strictObject({
      type: z.literal('model.call'),
      n: z.int(),
      status: z.int(),
      inputTokens: z.int(),
      cachedInputTokens: z.int(),
      cacheWriteInputTokens: z.int().optional(),
      outputTokens: z.int(),
      reasoningTokens: z.int(),
      costUsd: z.number(),
      latencyMs: z.number(),
      /** First 2,000 characters of the assistant's text and its tool commands. */
      text: z.string(),
      commands: z.array(z.string()),
    }),
    z.strictObject({
      type: z.literal('egress.denied'),
      seq: z.int(),
      protocol: z.string(),
      target: z.string(),
      reason: z.string(),
    }),
  ]),
})
export type LeaseEvent = z.infer<typeof leaseEventSchema>

export const hostFactsSchema = z.strictObject({
  name: z.string(),
  engine: z.string(),
  kernel: z.string(),
  cpus: z.int(),
  memoryBytes: z.int(),
  cgroupVersion: z.string(),
  closedbookVersion: z.string(),
  instance: z.string(),
  gpus: z.array(z.strictObject({ uuid: z.string(), name: z.string(), memoryBytes: z.int() })),
})
export type HostFacts = z.infer<typeof hostFactsSchema>

export const wireErrorSchema = z.strictObject({
  code: z.string(),
  message: z.string(),
  blame: z.string(),
})
