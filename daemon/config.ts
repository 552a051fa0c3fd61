/**
 * The daemon's configuration: one strict schema, from which the type, the defaults and the reference page come.
 * File, then environment (CLOSEDBOOK_…), then flags are merged before one parse; an unknown key or a bad value ends
 * the process with status 78 and the path of the value.
 */
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { parse as parseYaml } from 'yaml'
import { z } from 'zod'
import { HostError } from './errors.ts'
import { defaultStateDir } from './protocol/state-dir.ts'
import { zodMessage } from './protocol/zod-message.ts'

const absolutePath = z.string().regex(/^\//, 'give an absolute path')

export const daemonConfigSchema = z.strictObject({
  stateDir: z
    .string()
    .default(() => defaultStateDir(process.env))
    .describe('where leases, audit logs, bundles and the socket are kept'),
  socket: z
    .string()
    .max(100, 'a unix socket path may have 100 characters at most; choose a shorter stateDir')
    .optional()
    .describe('unix socket of the lease API; default: <stateDir>/daemon.sock'),
  engineSocket: z
    .string()
    .optional()
    .describe(
      'unix socket of the container engine; default: DOCKER_HOST, then the private engine of `closedbook up`, then /var/run/docker.sock',
    ),
  logLevel: z.enum(['debug', 'info', 'warn', 'error', 'silent']).default('info'),
  server: z
    .strictObject({
      listen: z
        .string()
        .regex(/^(auto|none|(\[[0-9a-f:.]+\]|[a-z0-9.-]+):\d{1,5})$/i, 'auto, none or host:port')
        .default('auto')
        .describe(
          'address of the HTTP listener for dashboard and remote commands, `host:port`; auto: 127.0.0.1:8480, or a free port where that is busy; none: the unix socket alone. Beyond loopback it needs `tls` and a token',
        ),
      names: z
        .array(z.string().regex(/^[a-z0-9.[\]:-]+$/i, 'a host name without a port'))
        .default([])
        .describe('names that requests may call this host by, beside the address it listens on'),
      origins: z
        .array(
          z.string().regex(/^https?:\/\/[a-z0-9.[\]:-]+$/i, 'scheme://host or scheme://host:port'),
        )
        .default([])
        .describe('origins of the dashboard behind a proxy with another scheme, name or port'),
      tls: z
        .strictObject({
          cert: absolutePath.describe('certificate chain, PEM; read again when it changes'),
          key: absolutePath.describe('its private key, PEM'),
        })
        .optional(),
      maxConnections: z.int().positive().default(512).describe('open connections at most'),
      maxConnectionsPerAddress: z
        .int()
        .positive()
        .default(128)
        .describe('of these, from one address'),
    })
    .prefault({}),
  board: z
    .strictObject({
      maxDocuments: z
        .int()
        .positive()
        .default(20_000)
        .describe('documents that runners publish for the dashboard; the oldest make room'),
      maxDocumentBytes: z
        .int()
        .positive()
        .default(8 * 1024 ** 2),
      maxBytes: z
        .int()
        .positive()
        .default(1024 ** 3)
        .describe('of all of them together'),
    })
    .prefault({}),
  capacity: z
    .strictObject({
      cpuShare: z
        .number()
        .positive()
        .default(8)
        .describe('CPUs lent for each CPU of the host: a sandbox mostly waits for its model'),
      memoryFraction: z
        .number()
        .gt(0)
        .max(1)
        .default(0.9)
        .describe('part of the host memory that leases may hold together'),
      leases: z.int().positive().default(256).describe('open leases at most'),
    })
    .prefault({}),
  diskBytes: z
    .int()
    .positive()
    .default(20 * 1024 ** 3)
    .describe('bytes a sandbox may add to its file system when its request does not say'),
  minFreeBytes: z
    .int()
    .nonnegative()
    .default(1024 ** 3)
    .describe('no lease is opened while the state or engine directory has less room than this'),
  egress: z
    .strictObject({
      allowPrivateAddresses: z
        .boolean()
        .default(false)
        .describe(
          'lets allowed hosts resolve to private and loopback addresses: for tests against stand-ins; said in every proof',
        ),
      hosts: z
        .record(z.string(), z.string())
        .default({})
        .describe('names resolved by this table instead of the resolver (address or address:port)'),
    })
    .prefault({}),
  audit: z
    .strictObject({
      maxBytesPerLease: z
        .int()
        .positive()
        .default(1024 ** 3)
        .describe(
          'a sandbox whose audit log would outgrow this is closed, and that is its own doing',
        ),
    })
    .prefault({}),
  retentionDays: z
    .number()
    .positive()
    .optional()
    .describe(
      'audit, events and exchanges of a lease are dropped so many days after it closed; default: kept for ever',
    ),
  gpu: z
    .strictObject({
      lend: z.boolean().default(true).describe('false: no GPU of this host is lent'),
      smi: absolutePath.optional().describe('nvidia-smi; default: found on PATH'),
      hook: absolutePath
        .optional()
        .describe(
          'nvidia-container-runtime-hook (or nvidia-ctk for CDI), asked for its version; default: found on PATH',
        ),
      mode: z
        .enum(['auto', 'nvidia', 'cdi'])
        .default('auto')
        .describe(
          "how the engine passes a GPU: by NVIDIA's hook or by device specs (CDI); auto prefers CDI where specs name the GPUs by UUID",
        ),
      requireToolkit: z
        .boolean()
        .default(true)
        .describe(
          'lend GPUs only with an NVIDIA container toolkit of a known version that keeps images in their containers (1.17.8)',
        ),
      memoryFloorBytes: z
        .int()
        .nonnegative()
        .default(512 * 1024 ** 2)
        .describe('a GPU with more of its memory in use is not empty'),
      smiTimeoutMs: z.int().positive().default(10_000).describe('for each call of nvidia-smi'),
      startTimeoutMs: z
        .int()
        .positive()
        .default(60_000)
        .describe('a container with GPUs must have started within this: a hook can hang'),
      releaseTimeoutMs: z
        .int()
        .positive()
        .default(60_000)
        .describe('a returned GPU that is not empty by then is dirty'),
      quarantineSeconds: z
        .number()
        .positive()
        .default(300)
        .describe('a faulty GPU is lent again when it has been found well for so long'),
      kernelLog: absolutePath.default('/dev/kmsg').describe('read for Xid errors of the driver'),
      monitors: z
        .array(z.string())
        .default([])
        .describe('names of containers that may have GPUs beside a lease, since they only watch'),
    })
    .prefault({}),
  pty: z
    .strictObject({
      backend: z
        .enum(['api', 'cli'])
        .default('api')
        .describe(
          "how terminals reach their programs: api, streams of the engine's own interface; cli, `docker exec -it`, or the like of a command that reaches the engine where such streams can't be had, on a terminal of the host",
        ),
      command: z
        .array(z.string().min(1))
        .min(1)
        .optional()
        .describe(
          'of the cli backend: what comes before `exec`; default: docker -H unix://<engineSocket>',
        ),
    })
    .prefault({}),
  huggingface: z
    .strictObject({
      endpoint: z
        .url({ protocol: /^https?$/ })
        .default('https://huggingface.co')
        .describe('the Hub, or a mirror of it, that pinned model artifacts come from'),
      tokenFile: z
        .string()
        .optional()
        .describe('file with a read token, sent to the endpoint alone; no sandbox sees it'),
      fileHosts: z
        .array(z.string())
        .default([])
        .describe(
          "hosts (host or host:port) that a mirror's redirects may lead to, beside the Hub's published ones",
        ),
      cache: z
        .strictObject({
          dir: z.string().optional().describe('default: <stateDir>/artifacts'),
          maxBytes: z
            .int()
            .positive()
            .default(200 * 1024 ** 3)
            .describe('beyond it, what was used longest ago is dropped'),
        })
        .prefault({}),
    })
    .prefault({}),
})

export type DaemonConfig = z.infer<typeof daemonConfigSchema>

const environment: Readonly<Record<string, string>> = {
  CLOSEDBOOK_STATE_DIR: 'stateDir',
  CLOSEDBOOK_SOCKET: 'socket',
  CLOSEDBOOK_ENGINE_SOCKET: 'engineSocket',
  CLOSEDBOOK_LOG_LEVEL: 'logLevel',
}

export interface ConfigSources {
  readonly file?: string
  readonly env?: NodeJS.ProcessEnv
  readonly flags?: Readonly<Record<string, unknown>>
}

export function loadDaemonConfig({
  file,
  env = process.env,
  flags = {},
}: ConfigSources): DaemonConfig {
  const merged: Record<string, unknown> = {}
  const chosen = file ?? path.join(defaultStateDir(env), 'daemon.yaml')
  if (file !== undefined || existsSync(chosen)) Object.assign(merged, readYaml(chosen))
  for (const [name, key] of Object.entries(environment)) {
    const value = env[name]
    if (value !== undefined && value !== '') merged[key] = value
  }
  for (const [key, value] of Object.entries(flags)) if (value !== undefined) merged[key] = value
  const parsed = daemonConfigSchema.safeParse(merged)
  if (!parsed.success)
    throw new HostError(
      'config_invalid',
      'operator',
      `the daemon's configuration${existsSync(chosen) ? ` (${chosen})` : ''} is wrong: ${zodMessage(parsed.error)}`,
    )
  return parsed.data
}

function readYaml(file: string): Record<string, unknown> {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (error) {
    throw new HostError(
      'config_invalid',
      'operator',
      `cannot read the configuration ${file}: ${(error as Error).message}`,
    )
  }
  try {
    return (parseYaml(text) ?? {}) as Record<string, unknown>
  } catch (error) {
    throw new HostError(
      'config_invalid',
      'operator',
      `${file} is not YAML: ${(error as Error).message}`,
    )
  }
}

export const socketOf = (config: DaemonConfig): string =>
  config.socket ?? path.join(config.stateDir, 'daemon.sock')

export const privateEngineSocket = (stateDir: string): string =>
  path.join(stateDir, 'engine', 'docker.sock')

/** The engine to talk to: the one that was named, else the first that exists. */
export function engineSocketOf(config: DaemonConfig, env: NodeJS.ProcessEnv = process.env): string {
  if (config.engineSocket !== undefined) return config.engineSocket.replace(/^unix:\/\//, '')
  const named = env['DOCKER_HOST']
  if (named?.startsWith('unix://')) return named.slice('unix://'.length)
  const own = privateEngineSocket(config.stateDir)
  return existsSync(own) ? own : '/var/run/docker.sock'
}
