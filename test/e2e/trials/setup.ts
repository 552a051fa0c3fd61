/**
 * What the tests of whole trials share: jobs of many scripts against the fixture task through the real command line,
 * and what must not be left when they are over.
 */
import { readFile, readdir } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { z } from 'zod'
import type { Engine } from '../../../daemon/engine/engine.ts'
import { instanceLabel } from '../../../daemon/engine/labels.ts'
import { readResult, resultSchema, type TrialResult } from '../../../runner/result.ts'
import { readSteps } from '../../../runner/trial/evidence.ts'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon, type CliResult } from '../../support/daemon.ts'
import type { TestEngine } from '../../support/engine.ts'

export const root = fileURLToPath(new URL('../../..', import.meta.url))
export const tally = path.join(root, 'test/fixtures/tasks/tally')
export const sampleTask = (name: string): string => path.join(root, 'images/tasks', name)

/** The last line of `run --json`, as the contract has it: these keys and no others. */
export const runLineSchema = z.strictObject({
  job: z.string(),
  trials: z.array(
    z.strictObject({
      trial: z.string(),
      task: z.string(),
      configuration: z.string(),
      run: z.int(),
      verdict: resultSchema.shape.verdict,
      blame: resultSchema.shape.blame,
      reason: resultSchema.shape.reason,
      result: z.string(),
    }),
  ),
})
export type RunLine = z.infer<typeof runLineSchema>

export interface Ran {
  readonly cli: CliResult
  readonly line: RunLine
  readonly jobDir: string
  readonly results: readonly TrialResult[]
}

export const lastLine = (text: string): string => text.trim().split('\n').at(-1) ?? ''

/** Reads what `run --json` or `resume --json` printed and every result that it names. */
export async function readRun(daemon: TestDaemon, cli: CliResult): Promise<Ran> {
  let line: RunLine
  try {
    line = runLineSchema.parse(JSON.parse(lastLine(cli.stdout)))
  } catch (error) {
    throw new Error(`exit ${cli.code}, and no line of results:\n${cli.stdout}\n${cli.stderr}`, {
      cause: error,
    })
  }
  const results: TrialResult[] = []
  for (const { result } of line.trials) results.push(await readResult(result))
  return { cli, line, jobDir: path.join(daemon.stateDir, 'jobs', line.job), results }
}

export interface Script {
  /** Becomes the configuration's name: letters, digits, "-". */
  readonly name: string
  readonly script: string
  readonly resources?: Readonly<Record<string, number>>
  readonly limits?: Readonly<Record<string, number>>
}

/** A job file of one configuration for each script. */
export async function jobFile(
  scratch: Scratch,
  scripts: readonly Script[],
  task = tally,
): Promise<string> {
  const configurations = []
  for (const { name, script, resources, limits } of scripts) {
    await scratch.write(`${name}.sh`, script)
    configurations.push({ name, harness: `script:${name}.sh`, resources, limits })
  }
  const spec = { name: 'scripts', tasks: [task], configurations, runs: 1, concurrency: 2 }
  return scratch.write('job.json', JSON.stringify(spec))
}

/** Results by name of the script. */
export async function runScripts(
  daemon: TestDaemon,
  scratch: Scratch,
  scripts: readonly Script[],
  task?: string,
): Promise<{ ran: Ran; of: (name: string) => TrialResult }> {
  const file = await jobFile(scratch, scripts, task)
  const ran = await readRun(daemon, await daemon.cli(['run', file, '--json']))
  return {
    ran,
    of: (name) => {
      const found = ran.results.find((result) => result.configuration.name === name)
      if (found === undefined) throw new Error(`no result of ${name}`)
      return found
    },
  }
}

export interface Row extends Script {
  readonly why: string
  /** What the trial must end as, as `endOf` says it. */
  readonly end: RegExp
  /** The script does not end by itself with 0. */
  readonly cutShort?: true
}

/** Runs the scripts as agents; each trial must be scored, end as its row says, and leave nothing. */
export async function checkRows(t: Test, engine: TestEngine, rows: readonly Row[]): Promise<Ran> {
  await using daemon = await TestDaemon.open(engine.socketPath)
  await using scratch = await Scratch.make()
  const { ran, of } = await runScripts(daemon, scratch, rows)
  t.equal(ran.cli.code, 0, 'every trial is scored')
  for (const { name, why, end } of rows) t.match(endOf(of(name)), end, `${name}: ${why}`)
  t.strictSame(await containersOf(daemon, engine.engine), [], 'no container is left')
  t.strictSame(await openLeases(daemon.stateDir), [], 'no lease is left')
  // the directory goes with the daemon
  t.strictSame(await failedScripts(ran, rows), [], 'each script did what it says')
  return ran
}

/** Names of the scripts that ended otherwise than they should: a cheat that did nothing proves nothing. */
async function failedScripts({ jobDir, results }: Ran, rows: readonly Row[]): Promise<string[]> {
  const failed: string[] = []
  for (const { trial, configuration } of results) {
    const whole = rows.find(({ name }) => name === configuration.name)?.cutShort !== true
    for (const directory of await executionDirs(jobDir, trial))
      for await (const { commands } of readSteps(directory)) {
        const exit = commands[0]?.exit as { code?: number } | undefined
        if ((exit?.code === 0) !== whole) failed.push(configuration.name)
      }
  }
  return failed
}

/** One line for people: what a test shows when a verdict isn't the expected one. */
export const endOf = ({ verdict, blame, reason }: TrialResult): string =>
  `${verdict} ${blame} ${reason.code}: ${reason.message}`

export const executionDirs = async (jobDir: string, trial: string): Promise<string[]> => {
  const executions = path.join(jobDir, 'trials', trial, 'executions')
  return (await readdir(executions)).toSorted().map((name) => path.join(executions, name))
}

/** Waits for a condition, with one deadline. */
export async function until<T>(
  what: string,
  look: () => Promise<T | null | undefined | false> | T | null | undefined | false,
  limitMs = 60_000,
): Promise<T> {
  const deadline = performance.now() + limitMs
  while (performance.now() < deadline) {
    const found = await look()
    if (found !== null && found !== undefined && found !== false) return found
    await delay(25)
  }
  throw new Error(`waited ${limitMs} ms in vain: ${what}`)
}

/** What is waited for while a command runs; the end of the command ends the wait. */
export async function whileRunning<T>(running: Promise<CliResult>, waited: Promise<T>): Promise<T> {
  const ended = running.then(({ code, stderr }): never => {
    throw new Error(`the command ended (${code}):\n${stderr}`)
  })
  ended.catch(() => {})
  return Promise.race([waited, ended])
}

export interface OpenLease {
  readonly lease: string
  readonly state: string
  readonly container: string | null
  readonly network: string
  readonly trial: string | null
}

/** The journal's open leases, as a daemon that starts now would find them. */
export async function openLeases(stateDir: string): Promise<OpenLease[]> {
  const directory = path.join(stateDir, 'leases', 'open')
  const leases: OpenLease[] = []
  for (const name of await readdir(directory)) {
    if (!name.endsWith('.json')) continue
    const text = await readFile(path.join(directory, name), 'utf8').catch(() => null)
    if (text === null) continue
    const { lease, state, container, request } = JSON.parse(text) as OpenLease & {
      request: { network: string; trial?: string }
    }
    const { network, trial = null } = request
    leases.push({ lease, state, container, network, trial })
  }
  return leases
}

export const containersOf = async (daemon: TestDaemon, engine: Engine): Promise<string[]> => {
  const instance = (await readFile(path.join(daemon.stateDir, 'instance'), 'utf8')).trim()
  return (await engine.listContainers({ [instanceLabel]: instance })).map(({ id }) => id)
}

/** A process, named so that a reused pid isn't taken for it. */
export interface Seen {
  readonly pid: number
  readonly startTime: string
  readonly command: string
}

async function look(pid: number): Promise<(Seen & { parent: number }) | null> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => null)
  if (stat === null) return null
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  if (fields[0] === 'Z') return null
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  return {
    pid,
    startTime: fields[19] ?? '',
    parent: Number(fields[1]),
    command: command.replaceAll('\0', ' ').trim(),
  }
}

/** Descendants of these processes, now. */
export async function descendantsOf(pids: readonly number[]): Promise<Seen[]> {
  const all = []
  for (const name of await readdir('/proc'))
    if (/^\d+$/.test(name)) all.push(await look(Number(name)))
  const found: Seen[] = []
  let parents = new Set(pids)
  while (parents.size > 0) {
    const children = all.filter((one) => one !== null && parents.has(one.parent)) as Seen[]
    found.push(...children)
    parents = new Set(children.map(({ pid }) => pid))
  }
  return found
}

export async function stillAlive(seen: readonly Seen[]): Promise<Seen[]> {
  const alive: Seen[] = []
  for (const one of seen) if ((await look(one.pid))?.startTime === one.startTime) alive.push(one)
  return alive
}
