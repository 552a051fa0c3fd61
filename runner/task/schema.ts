/**
 * The text of `task.toml`: a Harbor task (schema 1.0 to 1.4) plus the section [closedbook]. Harbor's own keys are read
 * as Harbor reads them, unknown ones ignored; a key we don't know under [closedbook] is an error.
 */
import { z } from 'zod'
import { allowedCapabilities } from '../../daemon/protocol/lease.ts'
import { huggingFaceRepoSchema } from '../../policy/hugging-face.ts'

const seconds = z.number().positive()

export const resultFormats = ['junit', 'ctrf', 'tap', 'reward'] as const
export type ResultFormat = (typeof resultFormats)[number]

const absolutePath = z
  .string()
  .regex(/^\/[^\0]*$/, 'must be an absolute path inside the container, e.g. "/workspace/project"')

const suiteSchema = z.strictObject({
  command: z
    .string()
    .min(1)
    .describe('run by `bash -c` in workdir, with the hidden tests at /tests and {results} as file'),
  results: z.enum(resultFormats).default('junit').describe('the format of what the command writes'),
  timeout_sec: seconds.optional().describe('absent: [verifier] timeout_sec'),
  expected: z
    .array(z.string().min(1))
    .min(1)
    .optional()
    .describe('ids of the tests that must be reported; an absent one counts as failed'),
  expected_file: z
    .string()
    .min(1)
    .optional()
    .describe('the same as a file of the task directory, one id a line'),
})

export const closedbookSectionSchema = z.strictObject({
  hardware: z.enum(['cpu', 'h100']).default('cpu'),
  image: z
    .string()
    .min(1)
    .optional()
    .describe('name@sha256:… or an image id sha256:…; absent: environment/Dockerfile'),
  workdir: absolutePath.optional(),
  base_commit: z
    .string()
    .regex(/^[0-9a-f]{40}([0-9a-f]{24})?$/, 'must be a full commit id of 40 (or 64) hex digits')
    .optional()
    .describe('the commit that the patch is taken against; absent: HEAD of the image'),
  verify: z.enum(['patch', 'snapshot', 'artifacts']).default('patch'),
  source: z
    .strictObject({
      kind: z.enum(['release-note', 'roadmap-issue', 'maintainer', 'own']),
      ref: z.string().min(1),
    })
    .optional(),
  area: z
    .string()
    .regex(/^[a-z0-9][a-z0-9-]*$/, 'must be lower-case words joined by hyphens')
    .default('unspecified'),
  capabilities: z.array(z.enum(allowedCapabilities)).default([]),
  pids: z.int().min(16).max(65536).optional(),
  shm_mb: z.int().nonnegative().optional(),
  huggingface: z
    .array(
      huggingFaceRepoSchema.extend({
        revision: z
          .string()
          .regex(/^[0-9a-f]{40}$/, 'must be a commit of 40 hex digits, not a branch')
          .describe('the commit that is served'),
      }),
    )
    .default([]),
  verifier_artifacts: z
    .boolean()
    .default(false)
    .describe('the hidden tests may read the artifacts too; else they run without any network'),
  functional: suiteSchema,
  regression: suiteSchema.optional(),
})
export type ClosedbookSection = z.infer<typeof closedbookSectionSchema>
export type SuiteSection = z.infer<typeof suiteSchema>

const envSchema = z.record(z.string(), z.string())
const userSchema = z.union([z.string(), z.int()])

/** As long as Docker's own; `timeout_sec` and the intervals may be parts of a second. */
const healthcheckSchema = z.looseObject({
  command: z.string().min(1),
  interval_sec: z.number().nonnegative().default(5),
  timeout_sec: seconds.default(30),
  start_period_sec: z.number().nonnegative().default(0),
  start_interval_sec: z.number().nonnegative().default(5),
  retries: z.int().positive().default(3),
})

const collectSchema = z.looseObject({
  command: z.string().min(1),
  service: z.string().default('main'),
  timeout_sec: seconds.default(60),
  user: userSchema.optional(),
})

export const networkModes = ['public', 'no-network', 'allowlist'] as const
const networkFields = {
  network_mode: z.enum(networkModes).optional(),
  allowed_hosts: z.array(z.string()).optional(),
}

export const harborEnvironmentSchema = z.looseObject({
  build_timeout_sec: seconds.default(600),
  docker_image: z.string().min(1).optional(),
  os: z.string().default('linux'),
  cpus: z.number().positive().optional(),
  memory_mb: z.int().positive().optional(),
  storage_mb: z.int().positive().optional(),
  memory: z.string().optional(),
  storage: z.string().optional(),
  gpus: z.int().nonnegative().optional(),
  gpu_types: z.array(z.string()).optional(),
  tpu: z.unknown().optional(),
  mcp_servers: z.array(z.unknown()).default([]),
  env: envSchema.default({}),
  skills_dir: z.string().optional(),
  healthcheck: healthcheckSchema.optional(),
  workdir: absolutePath.optional(),
  allow_internet: z.boolean().optional(),
  ...networkFields,
})
export type HarborEnvironment = z.infer<typeof harborEnvironmentSchema>

/** Everything of Harbor's that we use or must refuse; the rest passes unread. */
export const taskTomlSchema = z.looseObject({
  steps: z.array(z.unknown()).optional(),
  artifacts: z
    .array(
      z.union([
        z.string().transform((source) => ({ source, exclude: [] as string[] })),
        z.looseObject({
          source: z.string(),
          exclude: z.array(z.string()).default([]),
          service: z.string().optional(),
        }),
      ]),
    )
    .default([]),
  task: z.looseObject({ name: z.string().min(1), description: z.string().default('') }).optional(),
  environment: harborEnvironmentSchema.prefault({}),
  agent: z
    .looseObject({
      timeout_sec: seconds.optional(),
      user: userSchema.optional(),
      ...networkFields,
    })
    .prefault({}),
  verifier: z
    .looseObject({
      timeout_sec: seconds.default(600),
      env: envSchema.default({}),
      user: userSchema.optional(),
      environment_mode: z.enum(['shared', 'separate']).optional(),
      environment: harborEnvironmentSchema.optional(),
      collect: z.array(collectSchema).default([]),
      ...networkFields,
    })
    .prefault({}),
  solution: z.looseObject({ env: envSchema.default({}) }).prefault({}),
  closedbook: closedbookSectionSchema.optional(),
})
export type TaskToml = z.infer<typeof taskTomlSchema>
