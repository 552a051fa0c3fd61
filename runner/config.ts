/**
 * The runner's own settings, one strict object: defaults, then the file named by --runner-config or CLOSEDBOOK_CONFIG,
 * then CLOSEDBOOK_* variables, then flags, merged before one parse. What an agent runs with is in configuration.ts.
 */
import { join, resolve } from 'node:path'
import { z } from 'zod'
import { defaultStateDir } from '../daemon/protocol/state-dir.ts'
import { configFailure, readDocument } from './document.ts'
import { zodMessage } from '../daemon/protocol/zod-message.ts'

export const runnerConfigSchema = z.strictObject({
  stateDir: z.string().min(1).describe('where daemon and runner keep what they know'),
  socket: z.string().min(1).describe("the daemon's socket; default: daemon.sock in stateDir"),
  jobsDir: z
    .string()
    .min(1)
    .describe('where jobs and their results are; default: jobs in stateDir'),
  databaseUrl: z
    .string()
    .min(1)
    .optional()
    .describe(
      'PostgreSQL of a fleet (postgresql://…), or the state directory of another runner on this host; default: a private cluster in stateDir/pg',
    ),
  heartbeatSeconds: z
    .int()
    .min(10)
    .max(3600)
    .default(120)
    .describe(
      'a worker that has not been heard of for so long has lost its trials; it reports four times as often',
    ),
  url: z
    .string()
    .min(1)
    .optional()
    .describe('a daemon elsewhere, `https://host:port`, instead of the socket'),
  token: z.string().min(1).optional().describe('for `url`; better as CLOSEDBOOK_TOKEN'),
  ca: z
    .string()
    .min(1)
    .optional()
    .describe("PEM file of the certificates that `url` is trusted by; default: the system's"),
  requestTimeoutMs: z
    .int()
    .positive()
    .default(60_000)
    .describe(
      'how long one request to the daemon may go without an answer; opening a lease has no limit',
    ),
})
export type RunnerConfig = z.infer<typeof runnerConfigSchema>
export type RunnerFlags = { [K in keyof RunnerConfig]?: RunnerConfig[K] | undefined }

const variables: Readonly<Record<string, keyof RunnerConfig>> = {
  CLOSEDBOOK_STATE_DIR: 'stateDir',
  CLOSEDBOOK_SOCKET: 'socket',
  CLOSEDBOOK_JOBS_DIR: 'jobsDir',
  CLOSEDBOOK_URL: 'url',
  CLOSEDBOOK_TOKEN: 'token',
  CLOSEDBOOK_CA: 'ca',
  DATABASE_URL: 'databaseUrl',
  CLOSEDBOOK_DATABASE_URL: 'databaseUrl',
  CLOSEDBOOK_HEARTBEAT_SECONDS: 'heartbeatSeconds',
  CLOSEDBOOK_REQUEST_TIMEOUT_MS: 'requestTimeoutMs',
}

export async function loadRunnerConfig(
  flags: RunnerFlags & { file?: string | undefined } = {},
  env: NodeJS.ProcessEnv = process.env,
): Promise<RunnerConfig> {
  const { file: named, ...given } = flags
  const file = named ?? env['CLOSEDBOOK_CONFIG']
  const fromFile = file === undefined ? {} : await readDocument(file, 'runner configuration')
  const merged: Record<string, unknown> = { ...fromFile, ...fromEnv(env) }
  for (const [key, value] of Object.entries(given)) if (value !== undefined) merged[key] = value
  const stateDir = merged['stateDir'] ?? defaultStateDir(env)
  merged['stateDir'] = stateDir
  if (typeof stateDir === 'string') {
    merged['socket'] ??= join(stateDir, 'daemon.sock')
    merged['jobsDir'] ??= join(stateDir, 'jobs')
  }
  const parsed = runnerConfigSchema.safeParse(merged)
  if (!parsed.success)
    throw configFailure(file ?? 'runner settings', zodMessage(parsed.error), parsed.error)
  const { data } = parsed
  return {
    ...data,
    stateDir: resolve(data.stateDir),
    socket: resolve(data.socket),
    jobsDir: resolve(data.jobsDir),
  }
}

const numbers: ReadonlySet<keyof RunnerConfig> = new Set(['requestTimeoutMs', 'heartbeatSeconds'])

function fromEnv(env: NodeJS.ProcessEnv): Record<string, unknown> {
  const values: Record<string, unknown> = {}
  for (const [name, key] of Object.entries(variables)) {
    const text = env[name]
    if (text === undefined || text === '') continue
    values[key] = numbers.has(key) && /^\d+$/.test(text) ? Number(text) : text
  }
  return values
}
