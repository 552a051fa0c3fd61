/**
 * Runs one suite in its own fresh, offline container, with the hidden tests at /tests, and reads what it reported. The
 * report's directory is made here, just before, under a random name in this container alone. Environment that could
 * load code from the agent's tree into the runner is pinned or unset. A container or engine that is lost is thrown as
 * infra; everything the suite itself does (hangs, dies, writes nonsense) is part of the answer.
 */
import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import type { Exit } from '../../daemon/protocol/exec-frames.ts'
import { RunnerError } from '../errors.ts'
import type { ResultFormat } from '../task/schema.ts'
import { isPathMissing, isRefused } from './engine-answer.ts'
import { readRewards, rewardTests, type PassRule, type Rewards } from './report-reward.ts'
import { ReportError, type ReportedTest } from './reported.ts'
import type { Sandbox } from './sandbox.ts'
import { guardDirectory, testsTarget, type PreparedSuite } from './suite-bundle.ts'
import { readTar } from './tar-reader.ts'
import { tarEnd, tarHeader } from './tar-writer.ts'
import { maxReportBytes, parseReport } from './test-report.ts'
import { signalOption } from './tree.ts'

export type SuiteFault =
  | 'timeout'
  | 'results_missing'
  | 'results_not_a_file'
  | 'results_too_large'
  | 'results_unreadable'

export interface SuiteRun {
  readonly command: string
  readonly exit: Exit
  readonly durationMs: number
  readonly report:
    | {
        readonly ok: true
        readonly tests: readonly ReportedTest[]
        /** As they were written; only where the suite reports rewards. */
        readonly rewards?: Rewards
      }
    | { readonly ok: false; readonly fault: SuiteFault; readonly message: string }
  /** Bounded: the first and last half of the cap. */
  readonly stdout: Buffer
  readonly stderr: Buffer
  readonly outputBytes: number
  /** The report as it was written, for the evidence. */
  readonly reportFiles: readonly { readonly name: string; readonly bytes: Buffer }[]
}

export const defaultPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** Unset before the suite: each could run code of somebody's choosing in the test runner or its shell. */
const unset = [
  'PYTHONHOME',
  'PYTHONSTARTUP',
  'PYTHONUSERBASE',
  'PYTHONBREAKPOINT',
  'PYTHONINSPECT',
  'PYTHONPLATLIBDIR',
  'PYTEST_PLUGINS',
  'PYTEST_ADDOPTS',
  'LD_PRELOAD',
  'LD_AUDIT',
  'BASH_ENV',
  'ENV',
  'PERL5OPT',
  'RUBYOPT',
  'NODE_OPTIONS',
]

/**
 * The task's own variables come last, over ours: by name as arguments, their values beside them in the environment, for
 * arguments are kept in the lease's events, and a value may be a secret of the host.
 */
const valuePrefix = 'CLOSEDBOOK_VALUE_'
const launcher = `
unset ${unset.join(' ')}
export PYTHONPATH="$CLOSEDBOOK_GUARD\${PYTHONPATH:+:$PYTHONPATH}"
unset CLOSEDBOOK_GUARD
if [ -n "$CLOSEDBOOK_PYTEST" ]; then export PYTEST_ADDOPTS="$CLOSEDBOOK_PYTEST"; fi
unset CLOSEDBOOK_PYTEST
command=$1
cd "$2" || exit 98
shift 2
closedbook_left=$#
while [ $closedbook_left -gt 0 ]; do
  closedbook_name=$1
  shift
  eval "set -- \\"\\$@\\" \\"$closedbook_name=\\$${valuePrefix}$closedbook_name\\""
  unset "${valuePrefix}$closedbook_name"
  closedbook_left=$((closedbook_left - 1))
done
if [ -x /bin/bash ]; then exec /usr/bin/env "$@" /bin/bash -c "$command"; fi
exec /usr/bin/env "$@" /bin/sh -c "$command"
`

export async function runSuite(options: {
  /** Fresh, offline, patch applied, `prepared.bundleTar` at /tests. */
  sandbox: Sandbox
  /** `harbor`: in the image's own environment, nothing pinned, as the task's author had it. */
  manner?: 'harbor' | undefined
  /** Which rewards count and what passes; null: each, at its full mark. */
  pass?: PassRule | null
  prepared: PreparedSuite
  command: string
  results: ResultFormat
  workdir: string
  timeoutMs: number
  /** The task's own verifier environment; wins over ours. */
  env?: Readonly<Record<string, string>>
  user?: string | null
  /** The image's PATH, as pinPath leaves it. */
  path?: string
  /** Plugins by module name that the suite needs; the entry points of installed ones are not loaded. */
  pytestPlugins?: readonly string[]
  outputLimitBytes?: number
  /** After the command ended and before its report is read: freeze the lease, so that nothing still writes. */
  settle?: () => Promise<unknown>
  signal?: AbortSignal
}): Promise<SuiteRun> {
  const { sandbox, command, results, signal, manner } = options
  const place = resultsPlace(results)
  await sandbox.writeArchive('/', Readable.from([place.tar]), signalOption(signal))
  const stdout: Buffer[] = []
  const stderr: Buffer[] = []
  const text = command.replaceAll('{results}', place.path)
  const own = Object.entries(options.env ?? {})
  const end = await sandbox.exec(
    {
      ...(manner === 'harbor'
        ? {
            argv: ['/bin/bash', '-c', `(${text}) 2>&1`],
            env: { ...options.env },
            workdir: options.workdir,
          }
        : {
            argv: [
              '/bin/sh',
              '-c',
              launcher,
              'closedbook',
              text,
              options.workdir,
              ...own.map(([name]) => name),
            ],
            env: {
              ...suiteEnv(options, place.path),
              ...Object.fromEntries(own.map(([name, value]) => [valuePrefix + name, value])),
            },
            workdir: '/',
          }),
      timeoutMs: options.timeoutMs,
      outputLimitBytes: options.outputLimitBytes ?? 4 * 1024 * 1024,
      ...(options.user === undefined || options.user === null ? {} : { user: options.user }),
    },
    {
      onStdout: (bytes) => stdout.push(bytes),
      onStderr: (bytes) => stderr.push(bytes),
      ...signalOption(signal),
    },
  )
  if (end.cause !== 'exited' && end.cause !== 'timeout')
    throw new RunnerError(
      'verify_failed',
      'infra',
      `the verifier's lease ${sandbox.lease} was lost while the suite ran (${end.cause})`,
    )
  await options.settle?.()
  const files = end.cause === 'timeout' ? [] : await readFiles(sandbox, place.files, signal)
  return {
    command,
    exit: end.exit,
    durationMs: end.durationMs,
    report:
      end.cause === 'timeout'
        ? {
            ok: false,
            fault: 'timeout',
            message: `the suite did not end within ${options.timeoutMs / 1000} s`,
          }
        : reportOf(results, files, options.pass ?? null),
    stdout: Buffer.concat(stdout),
    stderr: Buffer.concat(stderr),
    outputBytes: end.stdout.totalBytes + end.stderr.totalBytes,
    reportFiles: files.flatMap((file) =>
      'bytes' in file ? [{ name: file.name, bytes: file.bytes }] : [],
    ),
  }
}

function suiteEnv(
  options: {
    prepared: PreparedSuite
    command: string
    results: ResultFormat
    path?: string
    pytestPlugins?: readonly string[]
  },
  resultsPath: string,
): Record<string, string> {
  const { prepared } = options
  const pytest = [
    '-p no:cacheprovider',
    ...(options.pytestPlugins ?? []).map((name) => `-p ${name}`),
    '--continue-on-collection-errors',
    `-c ${prepared.pytestConfig ?? '/dev/null'}`,
    `--rootdir=${testsTarget}`,
    `--confcutdir=${testsTarget}`,
    ...(options.results === 'junit' && !options.command.includes('{results}')
      ? [`--junit-xml=${resultsPath}`]
      : []),
  ]
  return {
    PATH: options.path ?? defaultPath,
    PYTHONDONTWRITEBYTECODE: '1',
    PYTHONNOUSERSITE: '1',
    PYTHONSAFEPATH: '1',
    PYTHONHASHSEED: '0',
    PYTEST_DISABLE_PLUGIN_AUTOLOAD: '1',
    CLOSEDBOOK_GUARD: `${testsTarget}/${guardDirectory}`,
    CLOSEDBOOK_PYTEST: prepared.runner === 'pytest' ? pytest.join(' ') : '',
    CLOSEDBOOK_RESULTS: resultsPath,
  }
}

/**
 * The image's PATH without what is relative and what the patch touched: a directory of the agent's tree in front would
 * give the suite a `pytest` of the agent's.
 */
export function pinPath(
  imagePath: string | undefined,
  root: string,
  changedPaths: readonly string[],
): string {
  const touched = (directory: string): boolean => {
    if (directory === root) return changedPaths.some((path) => !path.includes('/'))
    if (!directory.startsWith(`${root}/`)) return false
    const inner = `${directory.slice(root.length + 1).replace(/\/+$/, '')}/`
    return changedPaths.some((path) => path.startsWith(inner))
  }
  const kept = (imagePath ?? defaultPath)
    .split(':')
    .filter((directory) => directory.startsWith('/') && !touched(directory.replace(/\/+$/, '')))
  return kept.length === 0 ? defaultPath : kept.join(':')
}

interface ResultsPlace {
  /** What `{results}` stands for. */
  readonly path: string
  readonly files: readonly string[]
  readonly tar: Buffer
}

const names: Readonly<Record<Exclude<ResultFormat, 'reward'>, string>> = {
  junit: 'results.xml',
  ctrf: 'results.json',
  tap: 'results.tap',
}

/** Harbor's scripts write to /logs/verifier; everything else to a directory with a name of this run's own. */
function resultsPlace(results: ResultFormat): ResultsPlace {
  const [outer = '', inner = '', ...more] =
    results === 'reward'
      ? ['logs', 'logs/verifier', 'logs/agent', 'logs/artifacts']
      : ['results', `results/${randomBytes(12).toString('hex')}`]
  const tar = Buffer.concat([
    tarHeader({ path: outer, kind: 'directory', mode: results === 'reward' ? 0o755 : 0o711 }),
    ...[inner, ...more].map((path) => tarHeader({ path, kind: 'directory', mode: 0o777 })),
    tarEnd(),
  ])
  if (results === 'reward')
    return {
      path: `/${inner}/reward.txt`,
      files: [`/${inner}/reward.json`, `/${inner}/reward.txt`],
      tar,
    }
  return { path: `/${inner}/${names[results]}`, files: [`/${inner}/${names[results]}`], tar }
}

type ReadFile =
  | { readonly name: string; readonly bytes: Buffer }
  | {
      readonly name: string
      readonly fault: Exclude<SuiteFault, 'timeout'>
      readonly message: string
    }

async function readFiles(
  sandbox: Sandbox,
  paths: readonly string[],
  signal: AbortSignal | undefined,
): Promise<readonly ReadFile[]> {
  const files: ReadFile[] = []
  for (const path of paths) files.push(await readOne(sandbox, path, signal))
  return files
}

async function readOne(
  sandbox: Sandbox,
  path: string,
  signal: AbortSignal | undefined,
): Promise<ReadFile> {
  const name = path.slice(path.lastIndexOf('/') + 1)
  const archive = await sandbox.readArchive(path, signalOption(signal)).catch((error: unknown) => {
    if (isPathMissing(error)) return null
    if (isRefused(error)) return 'refused' as const
    throw error
  })
  if (archive === null)
    return { name, fault: 'results_missing', message: `the suite wrote no ${name}` }
  if (archive === 'refused')
    return { name, fault: 'results_not_a_file', message: `the engine can't read ${name}` }
  const parts: Buffer[] = []
  for await (const item of readTar(archive.tar)) {
    if (Buffer.isBuffer(item)) parts.push(item)
    else if (item.kind !== 'file' || archive.kind !== 'file')
      return {
        name,
        fault: 'results_not_a_file',
        message: `${name} is a ${item.kind}, not a plain file`,
      }
    else if (item.size > maxReportBytes)
      return {
        name,
        fault: 'results_too_large',
        message: `${name} has ${item.size} bytes, more than ${maxReportBytes}`,
      }
  }
  return { name, bytes: Buffer.concat(parts) }
}

function reportOf(
  results: ResultFormat,
  files: readonly ReadFile[],
  pass: PassRule | null,
): SuiteRun['report'] {
  const faulty = files.find(
    (file) => 'fault' in file && (results !== 'reward' || file.fault !== 'results_missing'),
  )
  if (faulty !== undefined && 'fault' in faulty)
    return { ok: false, fault: faulty.fault, message: faulty.message }
  const bytesOf = (name: string): Buffer | null => {
    const found = files.find((file) => file.name === name)
    return found !== undefined && 'bytes' in found ? found.bytes : null
  }
  if (results === 'reward' && files.every((file) => 'fault' in file))
    return {
      ok: false,
      fault: 'results_missing',
      message: 'the suite wrote neither reward.txt nor reward.json',
    }
  try {
    if (results !== 'reward')
      return { ok: true, tests: parseReport(results, bytesOf(names[results]) ?? Buffer.alloc(0)) }
    const rewards = readRewards({ json: bytesOf('reward.json'), txt: bytesOf('reward.txt') })
    return { ok: true, tests: rewardTests(rewards, pass), rewards }
  } catch (error) {
    if (!(error instanceof ReportError)) throw error
    return {
      ok: false,
      fault: 'results_unreadable',
      message: `the suite's report is not usable: ${error.message}`,
    }
  }
}
