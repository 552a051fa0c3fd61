/**
 * The keys that Harbor's task.toml (schema 1.0 to 1.4) knows, and which of them were not in a task's text. `*` stands
 * for any name, a list for a table's keys; our own section is strict in the schema and left out here.
 */
import type { KeyPath } from '../toml-lines.ts'

interface Keys {
  readonly [name: string]: Keys | null
}

const leaf = (names: string): Keys =>
  Object.fromEntries(names.split(' ').map((name) => [name, null]))

const healthcheck = leaf(
  'command interval_sec timeout_sec start_period_sec start_interval_sec retries',
)
const anything: Keys = { '*': null }
const environment: Keys = {
  ...leaf(
    'build_timeout_sec docker_image os cpus memory_mb storage_mb gpus gpu_types skills_dir workdir network_mode allowed_hosts allow_internet memory storage',
  ),
  env: anything,
  tpu: leaf('type topology'),
  mcp_servers: { ...leaf('name transport url command args'), headers: anything },
  healthcheck,
}
const agent = leaf('timeout_sec user network_mode allowed_hosts')
const verifier: Keys = {
  ...leaf('timeout_sec user network_mode allowed_hosts environment_mode'),
  env: anything,
  environment,
  collect: leaf('command service timeout_sec user'),
}
const artifacts = leaf('source destination exclude service')

const root: Keys = {
  ...leaf('schema_version version source multi_step_reward_strategy'),
  task: { ...leaf('name version description keywords'), authors: leaf('name email') },
  metadata: null,
  verifier,
  agent,
  environment,
  solution: { env: anything },
  artifacts,
  steps: { ...leaf('name min_reward'), agent, verifier, healthcheck, artifacts },
  closedbook: null,
}

export interface UnknownKey {
  readonly path: KeyPath
  /** The key that was probably meant. */
  readonly near: string | null
}

export function unknownKeys(value: unknown): UnknownKey[] {
  const found: UnknownKey[] = []
  const visit = (at: unknown, keys: Keys, path: KeyPath): void => {
    if (Array.isArray(at)) {
      at.forEach((item, index) => visit(item, keys, [...path, index]))
      return
    }
    if (typeof at !== 'object' || at === null || at instanceof Date) return
    for (const [name, inner] of Object.entries(at)) {
      const known = Object.hasOwn(keys, name) ? keys[name] : keys['*']
      if (known === undefined && !('*' in keys))
        found.push({ path: [...path, name], near: nearest(name, Object.keys(keys)) })
      else if (known != null) visit(inner, known, [...path, name])
    }
  }
  visit(value, root, [])
  return found
}

/** Within two edits, and closer than half of the word. */
export function nearest(word: string, candidates: readonly string[]): string | null {
  const ranked = candidates
    .map((name) => ({ name, edits: distance(word, name) }))
    .toSorted((a, b) => a.edits - b.edits)
  const best = ranked[0]
  return best !== undefined && best.edits <= 3 && best.edits * 2 < word.length ? best.name : null
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= b.length; j += 1)
      next.push(
        Math.min(
          (row[j] ?? 0) + 1,
          (next[j - 1] ?? 0) + 1,
          (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1),
        ),
      )
    row = next
  }
  return row[b.length] ?? 0
}
