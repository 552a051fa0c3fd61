/** Harbor features that a sealed, single-container trial can't honour. Refused by name and reason, never ignored. */
import type { TaskToml } from './schema.ts'
import type { TreeEntry } from './tree.ts'

export interface Refusal {
  readonly file: string
  readonly key: string
  readonly message: string
}

export function unsupportedFeatures(toml: TaskToml, entries: readonly TreeEntry[]): Refusal[] {
  const found: Refusal[] = []
  const refuse = (key: string, message: string, file = 'task.toml') =>
    found.push({ file, key, message })
  const has = (path: string) => entries.some((entry) => entry.path === path)
  const { environment, verifier } = toml

  if (toml.steps !== undefined || has('steps'))
    refuse('steps', 'tasks of several steps are not supported; make each step a task of its own')
  for (const name of ['docker-compose.yaml', 'docker-compose.yml', 'compose.yaml'])
    for (const folder of ['environment', 'tests'])
      if (has(`${folder}/${name}`))
        refuse(
          'compose',
          'tasks of several containers are not supported: a lease is one sealed container; put the services into its image',
          `${folder}/${name}`,
        )
  if (environment.os !== 'linux')
    refuse('environment.os', `"${environment.os}" containers are not supported; only linux is`)
  if (environment.tpu !== undefined) refuse('environment.tpu', 'hosts with TPUs are not supported')
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
  if (environment.healthcheck !== undefined)
    refuse(
      'environment.healthcheck',
      "health checks are not supported: the image's entrypoint is not run, so no service would ever be up",
    )
  if ((environment.gpus ?? 0) > 1)
    refuse(
      'environment.gpus',
      `${environment.gpus} GPUs are not supported; a task gets one H100 or none`,
    )
  const hosts = environment.allowed_hosts ?? toml.agent.allowed_hosts ?? []
  if (hosts.length > 0)
    refuse(
      'environment.allowed_hosts',
      'a task may not open hosts for itself; remove the key, and list the hosts in the policy of the configuration if the operator agrees',
    )
  if (verifier.environment !== undefined || has('tests/Dockerfile'))
    refuse(
      'verifier.environment',
      'a verifier image of its own is not supported: suites run in a fresh container of the task image with tests/ mounted',
    )
  if (verifier.collect.length > 0)
    refuse(
      'verifier.collect',
      "collect hooks are not supported: nothing runs in the agent's container after it is frozen",
    )
  if (toml.artifacts.some((artifact) => 'service' in artifact && artifact.service !== undefined))
    refuse(
      'artifacts.service',
      'artifacts of other services are not supported; a lease is one container',
    )
  for (const name of ['tests/.harborignore', 'solution/.harborignore'])
    if (has(name))
      refuse('.harborignore', 'ignore files are not supported; delete what must not be used', name)
  if (has('trajectory.json'))
    refuse('trajectory', 'a prior trajectory is not supported; remove the file', 'trajectory.json')
  return found
}
