/**
 * What the benchmarks share: the engine, the command line of docker to compare with, figures, and how they are
 * printed. A benchmark measures both sides of a ratio in one run, in turns, so that a busy machine is busy for both;
 * each figure with a bar ends in PASS or OVER, and a benchmark that has one over its bar exits 1.
 */
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import v8 from 'node:v8'
import vm from 'node:vm'
import { DockerEngine } from '../../daemon/engine/docker.ts'
import { buildImages, type ImageName } from '../../images/build.ts'
import {
  engineAnswers,
  engineSocketIn,
  startPrivateEngine,
} from '../../runner/host/private-engine.ts'
import { stopProcess } from '../../runner/host/process-record.ts'

const run = promisify(execFile)
export const root = fileURLToPath(new URL('../..', import.meta.url))
const stateDir = path.join(root, '.closedbook')

export interface Figure {
  readonly bench: string
  readonly what: string
  readonly measured: string
  readonly bar: string
  /** null: no bar, shown for what it explains. */
  readonly ok: boolean | null
}

export interface Bar {
  readonly what: string
  readonly value: number
  readonly unit: string
  /** The bar: at most, or at least, so much. */
  readonly atMost?: number
  readonly atLeast?: number
  /** What the value was made from. */
  readonly from?: string
}

export class Report {
  readonly #bench: string
  readonly figures: Figure[] = []

  constructor(bench: string) {
    this.#bench = bench
  }

  bar({ what, value, unit, atMost, atLeast, from }: Bar): void {
    const limit = atMost ?? atLeast ?? 0
    const suffix = unit === 'x' ? unit : ` ${unit}`
    this.#add({
      bench: this.#bench,
      what,
      measured: `${short(value)}${suffix}${from === undefined ? '' : ` (${from})`}`,
      bar: `${atMost === undefined ? 'at least' : 'at most'} ${limit}${suffix}`,
      ok: atMost === undefined ? value >= limit : value <= limit,
    })
  }

  figure(what: string, measured: string): void {
    this.#add({ bench: this.#bench, what, measured, bar: '', ok: null })
  }

  #add(figure: Figure): void {
    this.figures.push(figure)
    const mark = figure.ok === null ? '    ' : figure.ok ? 'PASS' : 'OVER'
    const bar = figure.bar === '' ? '' : `; bar: ${figure.bar}`
    console.log(`${mark}  ${figure.what}: ${figure.measured}${bar}`)
  }
}

/** Runs one benchmark as a program; under run.ts its figures also go to that by IPC. */
export async function bench(
  name: string,
  measure: (report: Report) => Promise<void>,
): Promise<void> {
  console.log(`# ${name}  (${await machine()}; load ${load()})`)
  const report = new Report(name)
  await measure(report)
  console.log(`  load afterwards ${load()}`)
  process.send?.({ figures: report.figures })
  process.exitCode = report.figures.some(({ ok }) => ok === false) ? 1 : 0
  // The channel would keep the process alive.
  if (process.connected) process.disconnect()
}

v8.setFlagsFromString('--expose-gc')
/** Between two turns: this process's garbage, collected amid one, would be measured with what is measured. */
export const collectOwnGarbage = vm.runInNewContext('() => gc({ type: "minor" })') as () => void

export const load = (): string =>
  os
    .loadavg()
    .map((value) => value.toFixed(2))
    .join(' ')

async function machine(): Promise<string> {
  return `${os.availableParallelism()} CPUs, ${Math.round(os.totalmem() / 1024 ** 3)} GiB, Linux ${os.release()}, Node ${process.version}`
}

export interface BenchEngine<Name extends ImageName> extends AsyncDisposable {
  readonly socketPath: string
  readonly engine: DockerEngine
  /** Ids of the base image and of those that were asked for. */
  readonly images: Readonly<Record<'base' | Name, string>>
  /** `docker ARGS` against this engine; its stdout, trimmed. */
  docker(...args: string[]): Promise<string>
}

/** The engine that CLOSEDBOOK_TEST_ENGINE names, else the tests' private one, started and stopped as needed. */
export async function benchEngine<const Name extends ImageName = never>(
  wanted: readonly Name[] = [],
): Promise<BenchEngine<Name>> {
  await using undo = new AsyncDisposableStack()
  const socketPath = await engineSocket(undo)
  const engine = undo.use(await DockerEngine.connect({ socketPath }))
  const built = await buildImages(['base' as const, ...wanted], { engine, stateDir })
  const ids = Object.entries<{ id: string }>(built).map(([name, { id }]) => [name, id])
  const docker = async (...args: string[]): Promise<string> =>
    (await run('docker', ['-H', `unix://${socketPath}`, ...args])).stdout.trim()
  const versions = '{{.Server.Version}}, docker command line {{.Client.Version}}'
  console.log(`  engine ${await docker('version', '--format', versions)}`)
  const owned = undo.move()
  return {
    socketPath,
    engine,
    images: Object.fromEntries(ids) as Record<'base' | Name, string>,
    docker,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

async function engineSocket(undo: AsyncDisposableStack): Promise<string> {
  const named = process.env['CLOSEDBOOK_TEST_ENGINE']
  if (named !== undefined && named !== '') return named
  const socket = engineSocketIn(stateDir)
  if (await engineAnswers(socket)) return socket
  const record = await startPrivateEngine(stateDir)
  undo.defer(() => stopProcess(record, 20_000))
  return socket
}

/** Milliseconds that `work` takes, and what it gives. */
export async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; value: T }> {
  const started = performance.now()
  const value = await work()
  return { ms: performance.now() - started, value }
}

export function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  const at = Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)
  return sorted[Math.max(0, at)] ?? Number.NaN
}

export const median = (values: readonly number[]): number => {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2
}

/** Three digits, as people read them. */
export const short = (value: number): string =>
  Math.abs(value) >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString()

/** `median 210 ms, p90 260` */
export const spread = (values: readonly number[], unit = 'ms'): string =>
  `median ${short(median(values))} ${unit}, p90 ${short(quantile(values, 0.9))}`

/** An option of the command line: `--n 20`. */
export function option(name: string, fallback: number): number {
  const at = process.argv.indexOf(`--${name}`)
  return at < 0 ? fallback : Number(process.argv[at + 1])
}

/** CPU that a process has used: fields 14 and 15 of its stat, in the kernel's hundredths of a second. */
export async function cpuMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * 10
}
