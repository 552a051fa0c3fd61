/**
 * Harbor features that a sealed, single-container trial can't honour. Refused by name, reason and line, never ignored.
 */
import type { LoadOptions } from './options.ts'
import { networkAsked } from './network.ts'
import { networkInstalls } from './network-install.ts'
import type { TaskToml } from './schema.ts'
import { lineOfKey } from './toml-lines.ts'
import type { TreeEntry } from './tree.ts'

export interface Refusal {
  readonly file: string
  /** 1-based. */
  readonly line: number
  readonly key: string
  readonly message: string
}

/** Files whose text is looked into, by their paths in the task; those that aren't there are left out. */
export type Texts = ReadonlyMap<string, string>

export const composeFiles = [
  'docker-compose.yaml',
  'docker-compose.yml',
  'compose.yaml',
  'compose.yml',
]

/** What the caller must read for `unsupportedFeatures`. */
export const filesToRead = (entries: readonly TreeEntry[]): string[] =>
  entries
    .filter(({ path, kind }) => kind === 'file' && (isCompose(path) || isTestScript(path)))
    .map(({ path }) => path)

const isCompose = (path: string): boolean =>
  composeFiles.some((name) => path === `environment/${name}` || path === `tests/${name}`)

const isTestScript = (path: string): boolean => /^tests\/(?:.*\/)?[^/]+\.(?:sh|bash)$/.test(path)

export function unsupportedFeatures(
  toml: TaskToml,
  entries: readonly TreeEntry[],
  texts: Texts = new Map(),
  options: LoadOptions = {},
): Refusal[] {
  const found: Refusal[] = []
  const source = texts.get('task.toml') ?? ''
  const refuse = (key: string, message: string) =>
    found.push({ file: 'task.toml', line: lineOfKey(source, key.split('.')) ?? 1, key, message })
  const refuseFile = (file: string, line: number, key: string, message: string) =>
    found.push({ file, line, key, message })
  const has = (path: string) => entries.some((entry) => entry.path === path)
  const { environment, verifier } = toml
  const ours = toml.closedbook !== undefined

  if (toml.steps !== undefined || has('steps'))
    refuse('steps', 'tasks of several steps are not supported; make each step a task of its own')
  for (const path of entries.map((entry) => entry.path).filter(isCompose))
    refuseFile(
      path,
      lineOf(texts.get(path), /^[ \t]*services[ \t]*:/m),
      'compose',
      'tasks of several containers are not supported: a lease is one sealed container; put the services into its image',
    )
  for (const [key, one] of environments(toml)) {
    if (one.os !== 'linux')
      refuse(`${key}.os`, `"${one.os}" containers are not supported; only linux is`)
    if (one.tpu !== undefined) refuse(`${key}.tpu`, 'hosts with TPUs are not supported')
    if ((one.gpus ?? 0) > 1)
      refuse(`${key}.gpus`, `${one.gpus} GPUs are not supported; a task gets one H100 or none`)
  }
  if (environment.mcp_servers.length > 0)
    refuse(
      'environment.mcp_servers',
      'MCP servers are not supported: the sandbox reaches the model endpoint and nothing else',
    )
  if (environment.skills_dir !== undefined)
    refuse(
      'environment.skills_dir',
      'skills are not supported; put what the agent needs into the instruction or the image',
    )
  found.push(...refusedNetwork(toml, source, options))
  if (verifier.environment_mode === 'shared' && verifier.environment !== undefined)
    refuse(
      'verifier.environment',
      'a shared verifier has no environment of its own; remove the table, or say environment_mode = "separate"',
    )
  if (ours && (verifier.environment !== undefined || has('tests/Dockerfile')))
    refuse(
      'verifier.environment',
      'a verifier image of its own is not supported beside a [closedbook] section: suites run in a fresh container of the task image with tests/ mounted',
    )
  const services = [
    ...verifier.collect.map(({ service }, n) => [`verifier.collect.${n}`, service] as const),
    ...toml.artifacts.map(
      (one, n) => [`artifacts.${n}`, 'service' in one ? one.service : undefined] as const,
    ),
  ]
  for (const [key, service] of services)
    if (service !== undefined && service !== 'main')
      refuse(`${key}.service`, `there is no service "${service}": a lease is one container, main`)
  if (has('trajectory.json'))
    refuseFile(
      'trajectory.json',
      1,
      'trajectory',
      'a prior trajectory is not supported; remove the file',
    )
  if (!ours)
    for (const [file, text] of texts)
      if (isTestScript(file))
        for (const { line, text: code, what } of networkInstalls(text))
          refuseFile(
            file,
            line,
            what,
            `hidden tests run without a network, and this would fetch from it: ${code}. Put what the tests need into the image`,
          )
  return found
}

const environments = ({ environment, verifier }: TaskToml) => [
  ['environment', environment] as const,
  ...(verifier.environment === undefined
    ? []
    : [['verifier.environment', verifier.environment] as const]),
]

/** A task with our section was made to run closed; of its own network it may only say the default. */
function refusedNetwork(toml: TaskToml, source: string, { harbor }: LoadOptions): Refusal[] {
  const asked = networkAsked(toml)
  if (asked === null || harbor?.network === 'closed-book') return []
  if (toml.closedbook !== undefined && asked.mode === 'public') return []
  const wants =
    asked.mode === 'allowlist'
      ? `asks for hosts of its own (${asked.hosts.join(', ')}): a task may not open hosts for itself`
      : asked.stated
        ? 'asks for the public network, which a sandbox has not'
        : 'says nothing, which is the public network to Harbor, and a sandbox has none'
  return [
    {
      file: 'task.toml',
      line: lineOfKey(source, asked.key.split('.')) ?? 1,
      key: asked.key,
      message: `${wants}. If it can be solved and graded without, run it with --closed-book-network (a job: harbor: {network: closed-book}); its results say so`,
    },
  ]
}

function lineOf(text: string | undefined, pattern: RegExp): number {
  const at = text === undefined ? -1 : text.search(pattern)
  return at <= 0 ? 1 : (text ?? '').slice(0, at).split('\n').length
}
