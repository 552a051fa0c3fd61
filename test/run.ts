/**
 * Runs format, lint, types and tests, in that order, on a real engine: the one that CLOSEDBOOK_TEST_ENGINE names, else
 * a private one under .closedbook/, which is stopped again. Images are built once and kept there. Ends with the line
 * `N passed, N failed`; a skipped test is a failure. Arguments are test files; without any, all run and all checks too.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { DockerEngine } from '../daemon/engine/docker.ts'
import { buildImages, imageNames } from '../images/build.ts'
import {
  engineAnswers,
  engineSocketIn,
  startPrivateEngine,
  stopPrivateEngine,
} from '../runner/host/private-engine.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const stateDir = path.join(root, '.closedbook')

/** For daemons to close their leases. */
const patienceMs = 10_000

interface Outcome {
  passed: number
  failed: number
}

async function command(argv: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<number> {
  const [program = '', ...args] = argv
  const child = spawn(program, args, {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, ...env },
    // A group of its own, so that tests and their daemons can be ended with it.
    detached: true,
  })
  const stop = (): void => {
    if (child.pid === undefined) return
    signalGroup(child.pid, 'SIGTERM')
    setTimeout(() => signalGroup(Number(child.pid), 'SIGKILL'), patienceMs).unref()
  }
  stopped.signal.addEventListener('abort', stop)
  if (stopped.signal.aborted) stop()
  const [code] = (await once(child, 'exit')) as [number | null]
  while (stopped.signal.aborted && signalGroup(Number(child.pid), 0)) await delay(100)
  stopped.signal.removeEventListener('abort', stop)
  return code ?? 1
}

/** False: nothing of it is left. */
function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-group, signal)
  } catch {
    return false
  }
}

/** By a signal: what runs is ended, and what was started is stopped. */
const stopped = new AbortController()
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => stopped.abort())

async function check(name: string, argv: readonly string[], outcome: Outcome): Promise<void> {
  const started = performance.now()
  const code = await command(argv)
  outcome[code === 0 ? 'passed' : 'failed'] += 1
  console.log(`${code === 0 ? 'ok' : 'FAILED'}  ${name}  ${seconds(started)}`)
}

const seconds = (since: number): string => `${((performance.now() - since) / 1000).toFixed(1)} s`

/** An engine for the tests, and what ends it again if it was started here. */
async function engine(): Promise<{ socket: string; stop: () => Promise<void> }> {
  const named = process.env['CLOSEDBOOK_TEST_ENGINE']
  if (named !== undefined && named !== '') return { socket: named, stop: async () => {} }
  const socket = engineSocketIn(stateDir)
  if (await engineAnswers(socket)) return { socket, stop: async () => {} }
  console.log('· starting a private container engine')
  const record = await startPrivateEngine(stateDir)
  return { socket, stop: () => stopPrivateEngine(record, stateDir) }
}

async function images(socketPath: string): Promise<void> {
  await using docker = await DockerEngine.connect({ socketPath })
  await buildImages(imageNames, {
    engine: docker,
    stateDir,
    onProgress: ({ phase, text }) => {
      if (phase === 'started' || phase === 'done') console.log(`· ${text}`)
    },
  })
}

async function tests(files: readonly string[], socket: string, outcome: Outcome): Promise<void> {
  const report = path.join(root, '.tap', 'report.tap')
  await mkdir(path.dirname(report), { recursive: true })
  // a terminal gets the live reporter; a log gets what failed, below
  const reporter = process.stdout.isTTY ? 'terse' : 'silent'
  await command(['tap', 'run', `--reporter=${reporter}`, `--output-file=${report}`, ...files], {
    CLOSEDBOOK_TEST_ENGINE: socket,
    CLOSEDBOOK_STATE_DIR: '',
    CLOSEDBOOK_ENGINE_SOCKET: '',
  })
  const text = await readFile(report, 'utf8').catch(() => '')
  const lines = text.split('\n')
  // the indented lines are the tests inside each file, which is what a person counts
  const results = lines.filter((line) => /^ {4}(not )?ok \d/.test(line))
  const bad = (line: string): boolean =>
    line.trimStart().startsWith('not ok') || /# (SKIP|TODO)\b/i.test(line)
  const files_ = lines.filter((line) => /^(not )?ok \d/.test(line))
  const failed = results.filter(bad).length
  outcome.passed += results.length - failed
  // a file that failed without a failed test in it (it crashed, or timed out) counts as one
  outcome.failed += Math.max(failed, files_.filter(bad).length)
  if (results.length === 0) outcome.failed += 1
  if (!process.stdout.isTTY) printFailures(lines)
}

const diagnosticLines = 40

/** Each file with its time, and each failed result with the diagnostics below it. */
function printFailures(lines: readonly string[]): void {
  for (const [index, line] of lines.entries()) {
    if (/^(not )?ok \d/.test(line)) console.log(line.replace(/ \{$/, ''))
    if (!/^\s+not ok /.test(line)) continue
    const indent = line.search(/\S/)
    const below = lines.slice(index + 1, index + diagnosticLines)
    const end = below.findIndex((next) => next.trim() !== '' && next.search(/\S/) <= indent)
    console.log([line, ...below.slice(0, end === -1 ? undefined : end)].join('\n'))
  }
}

const started = performance.now()
const files = process.argv.slice(2)
const outcome: Outcome = { passed: 0, failed: 0 }
if (files.length === 0) {
  await check('format', ['oxfmt', '--check', '.'], outcome)
  await check('lint', ['oxlint'], outcome)
  await check('types', ['tsc', '-b'], outcome)
}
const { socket, stop } = await engine()
try {
  await images(socket)
  if (!stopped.signal.aborted) await tests(files, socket, outcome)
} catch (error) {
  console.error(error)
  outcome.failed += 1
} finally {
  await stop()
}
console.log(`in ${seconds(started)}`)
console.log(`${outcome.passed} passed, ${outcome.failed} failed`)
process.exit(outcome.failed === 0 ? 0 : 1)
