/** task.toml: its schema with the line of each fault, keys that nobody reads, and settings that do not fit together. */
import { basename } from 'node:path'
import { z } from 'zod'
import { loadForLooking } from '../lenient.ts'
import { taskTomlSchema, type TaskToml } from '../schema.ts'
import type { Task } from '../task.ts'
import type { TaskDirectory } from './directory.ts'
import { isPinned } from './dockerfile-rules.ts'
import type { Findings } from './finding.ts'
import { unknownKeys } from './known-keys.ts'
import { lineOfKey, type KeyPath } from '../toml-lines.ts'
import { zodMessage } from '../../../daemon/protocol/zod-message.ts'

const file = 'task.toml'

/** The task as the runner reads it; null where it refuses, which is then among the findings. */
export async function checkConfig(
  findings: Findings,
  directory: TaskDirectory,
): Promise<{ toml: TaskToml | null; task: Task | null }> {
  const { tomlText, tomlError, toml: value } = directory
  if (tomlText === null) {
    findings.add('invalid-task-files', file, 'missing; `closedbook task init` makes one')
    return { toml: null, task: null }
  }
  if (tomlError !== null) {
    const line = /\b(\d+):\s*\|?.*\n?/.exec(tomlError.split('\n').slice(1).join('\n'))?.[1]
    const message = `not valid TOML: ${tomlError.split('\n')[0]}`
    findings.add('invalid-task-config', file, message, line === undefined ? null : Number(line))
    return { toml: null, task: null }
  }
  const at = (path: KeyPath): number | null => lineOfKey(tomlText, path)
  for (const { path, near } of unknownKeys(value))
    findings.add(
      'unknown-config-field',
      file,
      `${path.join('.')} is a key that nobody reads; ${near === null ? 'remove it' : `did you mean ${near}?`}`,
      at(path),
    )
  const parsed = taskTomlSchema.safeParse(value)
  if (!parsed.success) {
    for (const issue of parsed.error.issues) {
      const keys = issue.code === 'unrecognized_keys' ? issue.keys : [undefined]
      for (const key of keys) {
        const path = key === undefined ? issue.path : [...issue.path, key]
        const only = new z.ZodError([
          issue.code === 'unrecognized_keys' && key !== undefined
            ? { ...issue, keys: [key] }
            : issue,
        ])
        // the section is strict: with such a key the runner refuses the task
        findings.add('invalid-task-config', file, zodMessage(only), at(path))
      }
    }
    // A fault in our own section doesn't hide what Harbor's say.
    const others = taskTomlSchema.safeParse({ ...(value as object), closedbook: undefined })
    if (others.success) checkHarborSettings(findings, others.data, at)
    return { toml: null, task: null }
  }
  checkHarborSettings(findings, parsed.data, at)
  checkOwnSettings(findings, parsed.data, at)
  return { toml: parsed.data, task: await load(findings, directory, tomlText) }
}

/** What the loader refuses beyond the schema, as findings. It stops at its first fault; the other rules go on. */
async function load(
  findings: Findings,
  { dir }: TaskDirectory,
  tomlText: string,
): Promise<Task | null> {
  const { task, refused } = await loadForLooking(dir)
  for (const whole of refused?.message.split('\n') ?? []) {
    const inside = whole.startsWith(`${dir}/`) ? whole.slice(dir.length + 1) : whole
    const [, where = file, number, text = inside] =
      /^([^\s:]+)(?::(\d+))?: (.*)$/s.exec(inside) ?? []
    const key = where === file ? (/^([\w.[\]-]+)(?::| )/.exec(text)?.[1] ?? null) : null
    const line =
      number === undefined
        ? key === null
          ? null
          : lineOfKey(tomlText, key.split('.'))
        : Number(number)
    const rule =
      refused?.code === 'task_unsupported'
        ? 'unsupported-feature'
        : /is not pinned/.test(text)
          ? 'unpinned-image'
          : where === file
            ? 'invalid-task-config'
            : 'invalid-task-files'
    if (['unpinned-image', 'invalid-task-files'].includes(rule) && findings.has(rule, where))
      continue
    findings.add(rule, where, text, line)
  }
  return task
}

function checkHarborSettings(
  findings: Findings,
  toml: TaskToml,
  at: (path: KeyPath) => number | null,
): void {
  const image = toml.environment.docker_image
  if (image !== undefined) checkPinned(findings, ['environment', 'docker_image'], image, at)
  const user = toml.agent.user
  if (user === undefined || ['0', 'root'].includes(String(user).split(':')[0] ?? ''))
    findings.add(
      'root-agent',
      file,
      'agent.user is root or not said: name a user of the image',
      at(['agent', 'user']) ?? at(['agent']),
    )
  checkArtifacts(findings, toml, isSeparate(toml), at)
}

function checkOwnSettings(
  findings: Findings,
  toml: TaskToml,
  at: (path: KeyPath) => number | null,
): void {
  const own = toml.closedbook
  if (own === undefined) {
    if (!isSeparate(toml))
      findings.add(
        'shared-verifier',
        file,
        'under Harbor the tests run in the container that the agent had: set verifier.environment_mode = "separate" with its artifacts, or add [closedbook], whose suites always run in a fresh container',
        at(['verifier']),
      )
    findings.add(
      'missing-task-facts',
      file,
      'no [closedbook] section: area, source, hardware and the two suites are not said; `closedbook task import` writes a start',
    )
    return
  }
  if (own.image !== undefined) checkPinned(findings, ['closedbook', 'image'], own.image, at)
  const missing = [
    ...(own.area === 'unspecified' ? ['area = "public-api", "cache-systems", …'] : []),
    ...(own.source === undefined ? ['source = { kind = "own", ref = "…" }'] : []),
    ...(own.workdir === undefined && toml.environment.workdir === undefined
      ? ['workdir = "/…"']
      : []),
  ]
  if (missing.length > 0)
    findings.add(
      'missing-task-facts',
      file,
      `[closedbook] lacks ${missing.join(' and ')}`,
      at(['closedbook']),
    )
}

const isSeparate = ({ verifier }: TaskToml): boolean =>
  verifier.environment_mode === 'separate' || verifier.environment !== undefined

function checkPinned(
  findings: Findings,
  path: readonly string[],
  image: string,
  at: (path: KeyPath) => number | null,
): void {
  if (isPinned(image)) return
  const message = `${path.join('.')}: "${image}": a tag moves; write name@sha256:…`
  findings.add('unpinned-image', file, message, at(path))
}

interface Artifact {
  readonly source: string
  readonly destination?: unknown
}

/** Under Harbor's separate verifier artifacts go back to their own paths, and are kept on the host by destination. */
function checkArtifacts(
  findings: Findings,
  toml: TaskToml,
  separate: boolean,
  at: (path: KeyPath) => number | null,
): void {
  const artifacts: readonly Artifact[] = toml.artifacts
  const line = at(['artifacts'])
  const kept = artifacts.map(({ source, destination }) =>
    trimmed(typeof destination === 'string' ? destination : source),
  )
  for (const [index, { source }] of artifacts.entries()) {
    for (const logs of ['logs/verifier', 'logs/agent'])
      if (separate && (holds(logs, trimmed(source)) || holds(trimmed(source), logs)))
        findings.add(
          'artifact-log-overlap',
          file,
          `artifacts[${index}] "${source}" lies over /${logs}, which is the harness's: put what is needed elsewhere`,
          line,
        )
    const here = kept[index] ?? ''
    const other = kept
      .slice(0, index)
      .findIndex((there) => holds(here, there) || holds(there, here))
    if (other !== -1)
      findings.add(
        'overlapping-artifacts',
        file,
        `artifacts[${index}] and artifacts[${other}] would be kept at one place (${here}): name a destination, or drop one`,
        line,
      )
  }
}

const trimmed = (path: string): string => path.replace(/\/+/g, '/').replace(/^\/|\/$/g, '')

const holds = (outer: string, inner: string): boolean =>
  inner === outer || outer === '' || inner.startsWith(`${outer}/`)

export const taskNameOf = (directory: TaskDirectory, toml: TaskToml | null): string =>
  toml?.task?.name ?? basename(directory.dir)
