/**
 * Reads a task directory into a Task. Every error names the file, the key and what to do. Nothing is run and nothing
 * outside the directory is read.
 */
import { readFile, realpath } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { parse as parseToml } from 'smol-toml'
import { RunnerError, messageOf, systemCode } from '../errors.ts'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { taskEnv, taskResources } from './environment.ts'
import { resolveImage } from './image.ts'
import { taskTomlSchema, type SuiteSection, type TaskToml } from './schema.ts'
import type { Suite, SuiteName, Task } from './task.ts'
import { isDirectory, readTree, textDigest, treeDigest, type TreeEntry } from './tree.ts'
import { unsupportedFeatures } from './unsupported.ts'

export async function loadTask(path: string): Promise<Task> {
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
  const toml = await readTaskToml(dir)
  const entries = await readTree(dir)
  const refused = unsupportedFeatures(toml, entries)
  if (refused.length > 0)
    throw new RunnerError(
      'task_unsupported',
      'task',
      refused.map(({ file, key, message }) => `${join(dir, file)}: ${key}: ${message}`).join('\n'),
      { facts: { keys: refused.map(({ key }) => key) } },
    )
  const instruction = await readInstruction(dir)
  const own = toml.closedbook
  const notes: string[] = []
  if (toml.environment.network_mode === 'public')
    notes.push('environment.network_mode "public" is not followed: the sandbox is sealed')
  if (own === undefined)
    notes.push(
      'no [closedbook] section: /tests/test.sh is the functional suite, and there is no regression suite',
    )
  const hardware = own?.hardware ?? ((toml.environment.gpus ?? 0) > 0 ? 'h100' : 'cpu')
  const suites = await readSuites(dir, toml, entries)
  return {
    dir,
    name: toml.task?.name ?? basename(dir),
    description: toml.task?.description ?? '',
    area: own?.area ?? 'unspecified',
    hardware,
    source: own?.source ?? null,
    instruction,
    image: resolveImage(dir, toml, entries),
    workdir: own?.workdir ?? toml.environment.workdir ?? null,
    baseCommit: own?.base_commit ?? null,
    verify: verifyMode(dir, toml),
    artifacts: toml.artifacts.map(({ source, exclude }) => ({ source, exclude })),
    huggingface: own?.huggingface ?? [],
    suites,
    environment: {
      env: taskEnv(dir, 'environment.env', toml.environment.env),
      capabilities: own?.capabilities ?? [],
      buildTimeoutSeconds: toml.environment.build_timeout_sec,
      resources: taskResources(dir, toml),
    },
    agent: { timeoutSeconds: toml.agent.timeout_sec ?? null, user: userText(toml.agent.user) },
    verifier: {
      timeoutSeconds: toml.verifier.timeout_sec,
      user: userText(toml.verifier.user),
      env: taskEnv(dir, 'verifier.env', toml.verifier.env),
    },
    solution: {
      script: has(entries, 'solution/solve.sh') ? 'solve.sh' : null,
      env: taskEnv(dir, 'solution.env', toml.solution.env),
    },
    testsDir: join(dir, 'tests'),
    solutionDir: has(entries, 'solution') ? join(dir, 'solution') : null,
    digest: treeDigest(entries),
    testsDigest: treeDigest(entries, 'tests'),
    instructionDigest: textDigest(instruction),
    notes,
  }
}

async function readTaskToml(dir: string): Promise<TaskToml> {
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
  return parsed.data
}

/** Leading lines that hold a benchmark's canary, and blank lines after them, are for crawlers, not for the agent. */
export function withoutCanary(text: string): string {
  const lines = text.replace(/^\ufeff/, '').split('\n')
  let start = 0
  const isComment = (line: string) => /^\s*(<!--.*-->|#.*)\s*$/.test(line)
  while (start < lines.length) {
    const line = lines[start] ?? ''
    const canary = isComment(line) && /canary/i.test(line)
    if (!canary && !(start > 0 && line.trim() === '')) break
    start++
  }
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

async function readSuites(
  dir: string,
  toml: TaskToml,
  entries: readonly TreeEntry[],
): Promise<Task['suites']> {
  if (!entries.some((entry) => entry.kind === 'file' && entry.path.startsWith('tests/')))
    throw invalid(join(dir, 'tests'), 'missing or empty; put the hidden tests into it')
  const own = toml.closedbook
  if (own === undefined) {
    if (!has(entries, 'tests/test.sh'))
      throw invalid(
        join(dir, 'tests/test.sh'),
        'missing; add it, or name the suites in [closedbook.functional] of task.toml',
      )
    const command = 'chmod +x /tests/test.sh 2>/dev/null; /tests/test.sh'
    return {
      functional: {
        name: 'functional',
        command,
        results: 'reward',
        timeoutSeconds: toml.verifier.timeout_sec,
        expected: null,
      },
      regression: null,
    }
  }
  const suite = async (name: SuiteName, section: SuiteSection): Promise<Suite> => ({
    name,
    command: section.command,
    results: section.results,
    timeoutSeconds: section.timeout_sec ?? toml.verifier.timeout_sec,
    expected: await expectedTests(dir, name, section),
  })
  return {
    functional: await suite('functional', own.functional),
    regression: own.regression === undefined ? null : await suite('regression', own.regression),
  }
}

async function expectedTests(
  dir: string,
  name: SuiteName,
  section: SuiteSection,
): Promise<readonly string[] | null> {
  const key = `closedbook.${name}.expected`
  if (section.expected !== undefined && section.expected_file !== undefined)
    throw invalid(join(dir, 'task.toml'), `${key} and ${key}_file: give one of them`)
  let ids = section.expected
  if (section.expected_file !== undefined) {
    const text = await readFile(join(dir, section.expected_file), 'utf8').catch(
      (error: unknown) => {
        throw invalid(
          join(dir, 'task.toml'),
          `${key}_file: can't read ${section.expected_file} (${systemCode(error) ?? messageOf(error)}); it is relative to the task directory`,
        )
      },
    )
    ids = text
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '' && !line.startsWith('#'))
    if (ids.length === 0)
      throw invalid(join(dir, section.expected_file), 'lists no test; write one id a line')
  }
  if (ids === undefined) return null
  const twice = ids.find((id, index) => ids.indexOf(id) !== index)
  if (twice !== undefined)
    throw invalid(join(dir, 'task.toml'), `${key}: "${twice}" is listed twice; remove one`)
  return ids
}

function verifyMode(dir: string, toml: TaskToml): Task['verify'] {
  const mode =
    toml.closedbook?.verify ??
    (toml.verifier.environment_mode === 'separate' ? 'artifacts' : 'snapshot')
  if (mode === 'artifacts' && toml.artifacts.length === 0)
    throw invalid(
      join(dir, 'task.toml'),
      'verify "artifacts" needs at least one path in artifacts = [...]',
    )
  return mode
}

const userText = (user: string | number | undefined): string | null =>
  user === undefined ? null : String(user)

const has = (entries: readonly TreeEntry[], path: string): boolean =>
  entries.some((entry) => entry.path === path)

const invalid = (path: string, message: string): RunnerError =>
  new RunnerError('task_invalid', 'task', `${path}: ${message}`, { facts: { path } })
