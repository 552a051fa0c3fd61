/**
 * Reads a task directory into a Task. Every error names the file, the key and what to do. Nothing is run and nothing
 * outside the directory is read.
 */
import { readFile, realpath } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { parse as parseToml } from 'smol-toml'
import { RunnerError, messageOf, systemCode } from '../errors.ts'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { hostValues, taskEnv, taskResources } from './environment.ts'
import { ignoreFile, isLeftOut, leftOut, parseIgnore } from './harborignore.ts'
import { isPinned, resolveImage } from './image.ts'
import { networkAsked } from './network.ts'
import type { LoadOptions } from './options.ts'
import { taskTomlSchema, type TaskToml } from './schema.ts'
import { readSuites } from './suites.ts'
import type { Task } from './task.ts'
import {
  evidenceFolder,
  isDirectory,
  readTree,
  textDigest,
  treeDigest,
  type TreeEntry,
} from './tree.ts'
import { filesToRead, unsupportedFeatures } from './unsupported.ts'
import { isSeparate, verifierPlace } from './verifier-place.ts'

export async function loadTask(path: string, options: LoadOptions = {}): Promise<Task> {
  const dir = await realpath(path).catch((error: unknown) => {
    throw invalid(
      path,
      `no such task directory (${systemCode(error) ?? messageOf(error)}); give the directory that holds task.toml`,
    )
  })
  if (!(await isDirectory(dir)))
    throw invalid(
      path,
      'not a directory; give the directory that holds task.toml, not a file in it',
    )
  const { toml, text } = await readTaskToml(dir)
  const entries = await readTree(dir, { without: evidenceFolder })
  const texts = new Map([['task.toml', text]])
  for (const file of filesToRead(entries)) texts.set(file, await readFile(join(dir, file), 'utf8'))
  const refused = unsupportedFeatures(toml, entries, texts, options)
  if (refused.length > 0)
    throw new RunnerError(
      'task_unsupported',
      'task',
      refused
        .map(({ file, line, key, message }) => `${join(dir, file)}:${line}: ${key}: ${message}`)
        .join('\n'),
      { facts: { keys: refused.map(({ key }) => key) } },
    )
  const instruction = await readInstruction(dir)
  const own = toml.closedbook
  const asked = networkAsked(toml)
  const place = own === undefined ? verifierPlace(dir, toml, entries, options) : null
  const verify = verifyMode(dir, toml)
  const digest = treeDigest(entries)
  return {
    dir,
    name: toml.task?.name ?? options.name ?? basename(dir),
    description: toml.task?.description ?? '',
    area: own?.area ?? 'unspecified',
    hardware: own?.hardware ?? ((toml.environment.gpus ?? 0) > 0 ? 'h100' : 'cpu'),
    source: own?.source ?? null,
    instruction,
    image: resolveImage(dir, toml, entries),
    workdir: own?.workdir ?? toml.environment.workdir ?? null,
    baseCommit: own?.base_commit ?? null,
    verify,
    snapshotOf: own === undefined ? 'container' : 'workdir',
    artifacts: artifactsOf(toml, verify),
    huggingface: own?.huggingface ?? [],
    verifierArtifacts: own?.verifier_artifacts === true && own.huggingface.length > 0,
    suites: await readSuites(dir, toml, entries, { digest, bundled: place?.bundled === true }),
    environment: {
      env: taskEnv(dir, 'environment.env', toml.environment.env, options),
      capabilities: own?.capabilities ?? harborCapabilities,
      buildTimeoutSeconds: toml.environment.build_timeout_sec,
      resources: taskResources(dir, toml.environment, toml),
    },
    harbor: own === undefined,
    network: own === undefined && asked !== null ? { asked: asked.mode, hosts: asked.hosts } : null,
    hostValues: hostValues(toml, options),
    healthcheck: healthcheckOf(toml),
    collectHooks: toml.verifier.collect.map(({ command, timeout_sec, user }) => ({
      command,
      timeoutMs: Math.ceil(timeout_sec * 1000),
      user: userText(user),
    })),
    leftOut: await leftOutOf(dir, entries),
    agent: { timeoutSeconds: toml.agent.timeout_sec ?? null, user: userText(toml.agent.user) },
    verifier: {
      timeoutSeconds: toml.verifier.timeout_sec,
      user: userText(toml.verifier.user),
      env: taskEnv(dir, 'verifier.env', toml.verifier.env, options),
      place,
    },
    solution: {
      script: has(entries, 'solution/solve.sh') ? 'solve.sh' : null,
      env: taskEnv(dir, 'solution.env', toml.solution.env, options),
    },
    testsDir: join(dir, 'tests'),
    solutionDir: has(entries, 'solution') ? join(dir, 'solution') : null,
    digest,
    testsDigest: treeDigest(entries, 'tests'),
    instructionDigest: textDigest(instruction),
    notes: notesOf(toml),
  }
}

/** What an engine gives a container by default, as far as a sealed one may have it: Harbor's tasks count on it. */
const harborCapabilities: Task['environment']['capabilities'] = [
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'SETGID',
  'SETUID',
]

function notesOf(toml: TaskToml): string[] {
  const notes: string[] = []
  const asked = networkAsked(toml)
  if (toml.closedbook === undefined)
    notes.push(
      'no [closedbook] section: /tests/test.sh is the functional suite, and there is no regression suite',
    )
  else if (toml.environment.network_mode === 'public')
    notes.push('environment.network_mode "public" is not followed: the sandbox is sealed')
  if (toml.closedbook === undefined && asked !== null)
    notes.push(
      asked.mode === 'allowlist'
        ? `it asks for hosts of its own (${asked.hosts.join(', ')}) and runs without, because the operator said so`
        : 'it asks for the public network and runs without, because the operator said so',
    )
  if (toml.closedbook === undefined && toml.environment.docker_image !== undefined)
    if (!isPinned(toml.environment.docker_image))
      notes.push(`the image ${toml.environment.docker_image} is named by a tag, which may move`)
  return notes
}

function healthcheckOf({ environment: { healthcheck } }: TaskToml): Task['healthcheck'] {
  if (healthcheck === undefined) return null
  const ms = (seconds: number): number => Math.round(seconds * 1000)
  return {
    command: healthcheck.command,
    intervalMs: ms(healthcheck.interval_sec),
    timeoutMs: Math.max(1, ms(healthcheck.timeout_sec)),
    startPeriodMs: ms(healthcheck.start_period_sec),
    startIntervalMs: ms(healthcheck.start_interval_sec),
    retries: healthcheck.retries,
  }
}

/** Harbor takes /logs/artifacts along without being told. */
function artifactsOf(toml: TaskToml, verify: Task['verify']): Task['artifacts'] {
  const declared = toml.artifacts.map(({ source, exclude }) => ({ source, exclude }))
  const implicit = { source: '/logs/artifacts', exclude: [], optional: true }
  return toml.closedbook === undefined && verify === 'artifacts'
    ? [implicit, ...declared]
    : declared
}

async function leftOutOf(dir: string, entries: readonly TreeEntry[]): Promise<Task['leftOut']> {
  const rules = new Map<string, ReturnType<typeof parseIgnore>>()
  for (const { path, kind } of entries)
    if (kind === 'file' && basename(path) === ignoreFile && /^(?:tests|solution)\//.test(path))
      rules.set(dirname(path), parseIgnore(await readFile(join(dir, path), 'utf8')))
  const out = (folder: 'tests' | 'solution') => leftOut(entries, folder, (path) => rules.get(path))
  const left = { tests: out('tests'), solution: out('solution') }
  for (const [folder, file] of [
    ['tests', 'test.sh'],
    ['solution', 'solve.sh'],
  ] as const)
    if (isLeftOut(left[folder], file))
      throw invalid(
        join(dir, folder, ignoreFile),
        `leaves out ${file}, which is needed; bring it back with "!${file}"`,
      )
  return left
}

async function readTaskToml(dir: string): Promise<{ toml: TaskToml; text: string }> {
  const file = join(dir, 'task.toml')
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT')
      throw invalid(
        file,
        'missing; a task directory holds task.toml, instruction.md, tests/ and environment/',
      )
    throw invalid(file, messageOf(error))
  })
  let value: unknown
  try {
    value = parseToml(text)
  } catch (error) {
    throw invalid(file, `not valid TOML: ${messageOf(error).trim()}`)
  }
  const parsed = taskTomlSchema.safeParse(value)
  if (!parsed.success) throw invalid(file, zodMessage(parsed.error))
  return { toml: parsed.data, text }
}

/**
 * Leading lines that hold a benchmark's canary, and blank lines at the top, are for crawlers, not for the agent. As
 * Harbor does it.
 */
export function withoutCanary(text: string): string {
  const lines = text.replace(/^\ufeff/, '').split('\n')
  const canary = (line: string) => /^(?:<!--.*canary.*-->|#.*canary.*)$/i.test(line.trim())
  let start = 0
  while (start < lines.length && canary(lines[start] ?? '')) start++
  while (start < lines.length && (lines[start] ?? '').trim() === '') start++
  return lines.slice(start).join('\n')
}

async function readInstruction(dir: string): Promise<string> {
  const file = join(dir, 'instruction.md')
  const bytes = await readFile(file).catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT')
      throw invalid(file, 'missing; write into it what the agent is asked to do')
    throw invalid(file, messageOf(error))
  })
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw invalid(file, 'not UTF-8; save it as UTF-8')
  }
  if (text.includes('\0')) throw invalid(file, 'contains a NUL byte; remove it')
  const instruction = withoutCanary(text)
  if (instruction.trim() === '')
    throw invalid(file, 'empty; write into it what the agent is asked to do')
  return instruction
}

function verifyMode(dir: string, toml: TaskToml): Task['verify'] {
  const mode = toml.closedbook?.verify ?? (isSeparate(toml) ? 'artifacts' : 'snapshot')
  if (mode === 'artifacts' && toml.artifacts.length === 0 && toml.closedbook !== undefined)
    throw invalid(
      join(dir, 'task.toml'),
      'verify "artifacts" needs at least one path in artifacts = [...]',
    )
  for (const { source } of mode === 'artifacts' ? toml.artifacts : [])
    if (/^\/*$|^\/+(?:tests|logs\/+verifier)(?:\/|$)/.test(source))
      throw invalid(
        join(dir, 'task.toml'),
        `artifacts: ${source} is where the hidden tests and their results lie; declare the paths of the work alone`,
      )
  return mode
}

const userText = (user: string | number | undefined): string | null =>
  user === undefined ? null : String(user)

const has = (entries: readonly TreeEntry[], path: string): boolean =>
  entries.some((entry) => entry.path === path)

const invalid = (path: string, message: string): RunnerError =>
  new RunnerError('task_invalid', 'task', `${path}: ${message}`, { facts: { path } })
