/**
 * The configuration file: model + harness + settings, what a row of a benchmark's table stands for. Strict: an unknown
 * key is an error with its path. Paths in it are relative to the file. A key is named, never written down.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { z } from 'zod'
import {
  lacksCacheWritePrice,
  modelGatewaySchema,
  priceSchema,
  providerUrlSchema,
  someResourcesSchema,
  type Price,
} from '../../daemon/protocol/lease.ts'
import { nothingAllowed, policySchema, type Policy } from '../../policy/policy.ts'
import { configFailure, readDocument } from '../document.ts'
import { RunnerError, messageOf } from '../errors.ts'
import { commandFileDigest, readCommandFile } from '../harness/command-file.ts'
import { harnessText, needsModel, parseHarness, type Harness } from '../harness/harness.ts'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { passRuleSchema, type PassRule } from '../trial/report-reward.ts'
import { packDirectory } from '../trial/bundle.ts'
import { priceFromTable } from './price-table.ts'

const name = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'letters, digits, ".", "_" and "-", 64 at most')

const keySchema = z.union(
  [
    z.strictObject({ env: z.string().min(1).describe('variable that holds the key') }),
    z.strictObject({
      file: z.string().min(1).describe('file that holds the key and nothing else'),
    }),
  ],
  {
    error: 'name the key by {env: VARIABLE} or {file: PATH}; a key is never written into this file',
  },
)
export type KeySource = z.infer<typeof keySchema>

const upstreamSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('openai'),
    baseUrl: providerUrlSchema.describe('up to and without /chat/completions or /responses'),
    key: keySchema,
  }),
  z.strictObject({
    kind: z.literal('anthropic'),
    baseUrl: providerUrlSchema.describe('up to and without /messages, such as https://host/v1'),
    key: keySchema,
  }),
  z.strictObject({
    kind: z.literal('replay'),
    recordings: z.string().min(1).describe('directory of <task name>/<run>.jsonl'),
    api: z
      .enum(['openai', 'anthropic'])
      .optional()
      .describe('whose API was recorded, for a harness that speaks several; default openai'),
  }),
])

/** Sent by the harness itself; a configuration may not set them. */
const reserved = [
  'model',
  'messages',
  'tools',
  'stream',
  'api_key',
  'api_base',
  'base_url',
  'extra_headers',
  'max_retries',
  'num_retries',
  'timeout',
]

const modelSchema = z.strictObject({
  name: z.string().min(1).max(200).describe('the name sent to the provider'),
  upstream: upstreamSchema,
  price: priceSchema.optional().describe('US dollars per million tokens; or name a table'),
  prices: z
    .string()
    .min(1)
    .optional()
    .describe('file of dated prices; the price there of this name is taken'),
  parameters: z
    .record(z.string(), z.json())
    .default({})
    .superRefine((parameters, context) => {
      for (const key of Object.keys(parameters))
        if (reserved.includes(key))
          context.addIssue({
            code: 'custom',
            path: [key],
            message: 'set by the harness; remove it',
          })
    })
    .describe('request parameters passed on verbatim: temperature, max_tokens, seed …'),
  budget: modelGatewaySchema.shape.budget.describe('enforced by the gateway'),
  attempts: z.int().min(1).max(20).optional().describe('tries of one call; default 10, replay 3'),
  timeoutSeconds: z.int().min(1).default(600).describe('longest wait for the provider'),
})
/** With its price, wherever that was read. */
export type ModelSettings = Omit<z.infer<typeof modelSchema>, 'price' | 'prices'> & {
  readonly price: Price
}

export const limitsSchema = z.strictObject({
  steps: z.int().positive().default(250).describe('model calls of one trial'),
  costUsd: z.number().positive().default(3),
  wallTimeSeconds: z.int().positive().default(3600).describe('of the agent phase'),
  commandTimeoutSeconds: z.int().positive().default(180).describe('of one command of the agent'),
})
export type Limits = z.infer<typeof limitsSchema>

export const configurationSchema = z.strictObject({
  name: name.optional().describe("default: the file's name"),
  harness: z.string().default('mini-swe-agent'),
  model: modelSchema.optional(),
  limits: limitsSchema.prefault({}),
  resources: someResourcesSchema.optional().describe('of the task container; win over the task'),
  policy: z
    .union([z.string().min(1), policySchema])
    .optional()
    .describe('a policy or the path of one; default: nothing is allowed'),
  pass: passRuleSchema
    .optional()
    .describe(
      'for tasks that report rewards: which of them count, and what passes, such as {reward: ">=0.5"}; default: each of them, at exactly 1',
    ),
})

export interface Configuration {
  readonly name: string
  readonly harness: Harness
  /** The image that the file of a `command:` harness names; null: none, or one of ours. */
  readonly namedImage: string | null
  readonly model: ModelSettings | null
  readonly limits: Limits
  readonly resources: Readonly<z.infer<typeof configurationSchema>['resources']> | null
  readonly policy: Policy
  /** null: every reward at its full mark. */
  readonly pass: PassRule | null
  /** sha256 of everything that can change an outcome, script and policy content included; never of a key. */
  readonly digest: string
}

/** What a job says for those of its configurations that don't; paths in it are absolute. */
export interface ConfigurationDefaults {
  readonly limits?: { readonly [K in keyof Limits]?: Limits[K] | undefined } | undefined
  readonly policy?: string | Policy | undefined
  readonly prices?: string | undefined
}

export interface ConfigurationOverrides {
  readonly harness?: string | undefined
  readonly defaults?: ConfigurationDefaults | undefined
}

export async function loadConfiguration(
  path: string,
  overrides: ConfigurationOverrides = {},
): Promise<Configuration> {
  const value = await readDocument(path, 'configuration')
  const stem = path.replace(/^.*\//, '').replace(/\.(ya?ml|json)$/, '')
  return resolveConfiguration(value, {
    path,
    defaultName: stem,
    baseDir: dirname(resolve(path)),
    overrides,
  })
}

/** A configuration for a harness that needs no model: `run --harness noop`. */
export const plainConfiguration = (harness: string, baseDir: string): Promise<Configuration> =>
  resolveConfiguration(
    { harness },
    { path: `--harness ${harness}`, defaultName: harness.replace(/:.*$/, ''), baseDir },
  )

export async function resolveConfiguration(
  value: unknown,
  where: {
    path: string
    defaultName: string
    baseDir: string
    overrides?: ConfigurationOverrides
  },
): Promise<Configuration> {
  const parsed = configurationSchema.safeParse(withDefaults(value, where.overrides?.defaults))
  if (!parsed.success) throw configFailure(where.path, zodMessage(parsed.error), parsed.error)
  const { data } = parsed
  const harness =
    where.overrides?.harness === undefined
      ? at(where.path, () => parseHarness(data.harness, where.baseDir))
      : parseHarness(where.overrides.harness, process.cwd())
  if (needsModel(harness) && data.model === undefined)
    throw configFailure(where.path, `model: missing; harness ${harnessText(harness)} needs one`)
  const label = name.safeParse(data.name ?? where.defaultName)
  if (!label.success)
    throw configFailure(
      where.path,
      `name: "${where.defaultName}" can't be a name: ${zodMessage(label.error)}`,
    )
  const policy = await loadPolicy(data.policy, where)
  const model = data.model === undefined ? null : await resolveModel(data.model, where)
  const rest = {
    name: label.data,
    harness,
    model,
    limits: data.limits,
    resources: data.resources ?? null,
    policy,
    pass: data.pass ?? null,
  }
  const namedImage =
    harness.kind === 'command' ? ((await readCommandFile(harness.file)).image ?? null) : null
  return { ...rest, namedImage, digest: await configurationDigest(rest) }
}

/** Whether an image holds what drives the model; the plan's `harnessDigest` is then its id. */
export const usesHarnessImage = ({
  harness,
  namedImage,
}: Pick<Configuration, 'harness' | 'namedImage'>): boolean =>
  harness.kind === 'mini-swe-agent' || namedImage !== null

/** Before the parse, for afterwards what was said can't be told from what wasn't. */
function withDefaults(value: unknown, defaults: ConfigurationDefaults | undefined): unknown {
  if (defaults === undefined || !isObject(value)) return value
  const { limits, policy, prices } = defaults
  const model = value['model']
  return {
    ...value,
    ...(limits !== undefined &&
      (value['limits'] === undefined || isObject(value['limits'])) && {
        limits: { ...limits, ...value['limits'] },
      }),
    ...(policy !== undefined && value['policy'] === undefined && { policy }),
    ...(prices !== undefined &&
      isObject(model) &&
      model['price'] === undefined &&
      model['prices'] === undefined && { model: { ...model, prices } }),
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function at<T>(path: string, make: () => T): T {
  try {
    return make()
  } catch (error) {
    throw configFailure(path, messageOf(error), error)
  }
}

async function loadPolicy(
  policy: string | Policy | undefined,
  where: { path: string; baseDir: string },
): Promise<Policy> {
  if (policy === undefined) return nothingAllowed
  if (typeof policy !== 'string') return policy
  const file = resolve(where.baseDir, policy)
  const parsed = policySchema.safeParse(await readDocument(file, 'policy'))
  if (!parsed.success) throw configFailure(file, zodMessage(parsed.error), parsed.error)
  return parsed.data
}

async function resolveModel(
  { price: written, prices, ...model }: z.infer<typeof modelSchema>,
  where: { path: string; baseDir: string },
): Promise<ModelSettings> {
  if ((written === undefined) === (prices === undefined))
    throw configFailure(
      where.path,
      'model.price: write the price down, or name a table of prices with model.prices, and not both',
    )
  const price = written ?? (await priceFromTable(resolve(where.baseDir, prices ?? ''), model.name))
  if (lacksCacheWritePrice({ ...model, price }))
    throw configFailure(
      where.path,
      'model.price.cacheWriteInputPerMillionUsd: is missing; an upstream of kind anthropic bills it',
    )
  return withAbsolutePaths({ ...model, price }, where.baseDir)
}

function withAbsolutePaths(model: ModelSettings, baseDir: string): ModelSettings {
  const { upstream } = model
  if (upstream.kind === 'replay')
    return {
      ...model,
      upstream: { ...upstream, recordings: resolve(baseDir, upstream.recordings) },
    }
  if ('file' in upstream.key)
    return {
      ...model,
      upstream: { ...upstream, key: { file: resolve(baseDir, upstream.key.file) } },
    }
  return model
}

async function configurationDigest(
  configuration: Omit<Configuration, 'digest' | 'namedImage'>,
): Promise<string> {
  const { harness, model, pass, ...others } = configuration
  const script = 'file' in harness ? await harnessFileDigest(harness) : null
  const facts = {
    ...others,
    ...(pass !== null && { pass }),
    harness: harnessKindText(harness),
    script,
    model: model === null ? null : { ...model, upstream: upstreamFacts(model.upstream) },
  }
  return `sha256:${createHash('sha256').update(canonicalJson(facts)).digest('hex')}`
}

/** Neither where a key is nor where recordings lie changes an outcome. */
const upstreamFacts = (upstream: ModelSettings['upstream']) =>
  upstream.kind === 'replay'
    ? { kind: upstream.kind, ...(upstream.api !== undefined && { api: upstream.api }) }
    : { kind: upstream.kind, baseUrl: upstream.baseUrl }

const harnessKindText = (harness: Harness): string =>
  'file' in harness ? harness.kind : harnessText(harness)

async function harnessFileDigest(harness: Extract<Harness, { file: string }>): Promise<string> {
  if (harness.kind === 'script') return scriptDigest(harness.file)
  const command = await readCommandFile(harness.file)
  const content =
    command.directory === undefined
      ? ''
      : createHash('sha256')
          .update(await packDirectory(command.directory))
          .digest('hex')
  return commandFileDigest(command, content)
}

async function scriptDigest(file: string): Promise<string> {
  const bytes = await readFile(file).catch((error: unknown) => {
    throw configFailure(file, `can't read the script of the harness: ${messageOf(error)}`, error)
  })
  return createHash('sha256').update(bytes).digest('hex')
}

/** JSON with sorted keys: equal values have equal text. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : inner,
  )
}

/** Reads the key when a lease is opened; it goes to the daemon and nowhere else. */
export async function readKey(
  key: KeySource,
  env: NodeJS.ProcessEnv = process.env,
): Promise<string> {
  if ('env' in key) {
    const value = env[key.env]?.trim()
    if (value !== undefined && value !== '') return value
    throw new RunnerError(
      'config_invalid',
      'operator',
      `model.upstream.key: the variable ${key.env} is not set; export it with the provider's key`,
    )
  }
  const text = await readFile(key.file, 'utf8').catch((error: unknown) => {
    throw configFailure(
      key.file,
      `can't read the key file of model.upstream.key: ${messageOf(error)}`,
      error,
    )
  })
  if (text.trim() === '')
    throw configFailure(key.file, 'the key file is empty; put the key into it')
  return text.trim()
}

/** The budget that the gateway enforces: what is set, else the limits, with room for the harness to end by itself. */
export const gatewayBudget = (model: ModelSettings, limits: Limits): ModelSettings['budget'] => ({
  calls: limits.steps + 10,
  costUsd: limits.costUsd * 1.1,
  ...model.budget,
})

/** Everything set, for `configuration.settings` of a result; a key is shown by its source only. */
export const settingsOf = (configuration: Configuration): Record<string, z.core.util.JSONType> => {
  const { model, limits, resources, policy, pass } = configuration
  const facts = {
    limits,
    resources,
    policy,
    ...(model !== null && { model }),
    ...(pass !== null && { pass }),
  }
  return z.record(z.string(), z.json()).parse(JSON.parse(JSON.stringify(facts)))
}
