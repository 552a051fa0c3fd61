/**
 * The hidden tests as a suite's own container sees them: a copy of the task's tests/ with this suite's canaries, our
 * guard directory and nothing of the host (root-owned, dated 0), as one tar. Each execution and suite gets its own.
 */
import { createHash, randomInt } from 'node:crypto'
import { lstat, readFile, readdir, readlink } from 'node:fs/promises'
import { join, posix } from 'node:path'
import { RunnerError } from '../errors.ts'
import { isLeftOut } from '../task/harborignore.ts'
import type { Suite } from '../task/task.ts'
import { canaryFileName, makeCanary, type Canary, type Random } from './canary.ts'
import { withContradiction } from './contradiction.ts'
import { tarEnd, tarFile, tarHeader } from './tar-writer.ts'

export const testsTarget = '/tests'
/** First on PYTHONPATH, so that no sitecustomize of another place runs. */
export const guardDirectory = '.guard'

export interface PreparedSuite {
  readonly bundleTar: Buffer
  /** Hex; the bundle's name. */
  readonly sha256: string
  readonly runner: 'pytest' | 'other'
  readonly canaries: readonly Canary[]
  /** Why there are no canaries; null where there are. */
  readonly note: string | null
  /** The task's own pytest configuration in the container; null: none is to be read. */
  readonly pytestConfig: string | null
}

interface HostFile {
  readonly path: string
  readonly kind: 'file' | 'directory' | 'symlink'
  readonly mode: number
  readonly bytes: Buffer
  readonly target: string
}

export async function prepareSuite(options: {
  testsDir: string
  suite: Pick<Suite, 'name' | 'command' | 'results' | 'manner'>
  /** By `.harborignore`. */
  leftOut?: ReadonlySet<string>
  random?: Random
}): Promise<PreparedSuite> {
  const { testsDir, suite, leftOut = new Set(), random = (limit) => randomInt(limit) } = options
  const files = new Map(
    (await readTests(testsDir))
      .filter(({ path }) => !isLeftOut(leftOut, path))
      .map((file) => [file.path, file]),
  )
  if (suite.manner === 'harbor') return asHarbor(files)
  const script = `${suite.command}\n${scriptsOf(suite.command, files)}`
  const runner = /\bpy\.?test\b/.test(script) ? 'pytest' : 'other'
  const config = runner === 'pytest' ? configOf(files) : null
  const planted =
    runner === 'pytest' && suite.results !== 'reward'
      ? plant(script, suite.name, files, config, random)
      : []
  for (const name of ['sitecustomize.py', 'usercustomize.py'])
    addFile(files, `${guardDirectory}/${name}`, '# keeps others of this name out\n')
  files.set(guardDirectory, directoryAt(guardDirectory))
  const bundleTar = tarOf(files)
  return {
    bundleTar,
    sha256: createHash('sha256').update(bundleTar).digest('hex'),
    runner,
    canaries: planted,
    note: noteOf(runner, suite.results),
    pytestConfig: config === null ? null : `${testsTarget}/${config}`,
  }
}

/** The files as they are, the script executable; the task's own runner does the rest. */
function asHarbor(files: Map<string, HostFile>): PreparedSuite {
  const script = files.get('test.sh')
  if (script !== undefined) files.set('test.sh', { ...script, mode: 0o755 })
  const bundleTar = tarOf(files)
  return {
    bundleTar,
    sha256: createHash('sha256').update(bundleTar).digest('hex'),
    runner: 'other',
    canaries: [],
    note: noteOf('other', 'reward'),
    pytestConfig: null,
  }
}

function noteOf(runner: 'pytest' | 'other', results: Suite['results']): string | null {
  if (results === 'reward')
    return 'no canaries: the task computes its reward itself, and would count them'
  return runner === 'pytest' ? null : 'no canaries: the command does not run pytest'
}

async function readTests(root: string): Promise<HostFile[]> {
  const found: HostFile[] = []
  const walk = async (path: string): Promise<void> => {
    for (const name of (await readdir(join(root, path))).sort()) {
      if (name === '__pycache__' || name === '.pytest_cache') continue
      const inner = path === '' ? name : `${path}/${name}`
      const full = join(root, inner)
      const facts = await lstat(full)
      const base = { path: inner, mode: facts.mode & 0o111 ? 0o755 : 0o644, target: '' }
      if (facts.isDirectory()) {
        found.push(directoryAt(inner))
        await walk(inner)
      } else if (facts.isFile()) {
        found.push({ ...base, kind: 'file', bytes: await readFile(full) })
      } else if (facts.isSymbolicLink()) {
        const target = await readlink(full)
        found.push({ ...base, kind: 'symlink', bytes: Buffer.alloc(0), target })
      } else {
        throw invalid(`tests/${inner} is neither a file, a directory nor a link`)
      }
    }
  }
  await walk('')
  return found
}

const invalid = (message: string): RunnerError => new RunnerError('task_invalid', 'task', message)

const directoryAt = (path: string): HostFile => ({
  path,
  kind: 'directory',
  mode: 0o755,
  bytes: Buffer.alloc(0),
  target: '',
})

const addFile = (files: Map<string, HostFile>, path: string, text: string): void => {
  files.set(path, { path, kind: 'file', mode: 0o644, bytes: Buffer.from(text), target: '' })
}

function tarOf(files: ReadonlyMap<string, HostFile>): Buffer {
  const parts: Buffer[] = []
  for (const path of [...files.keys()].sort()) {
    const file = files.get(path) as HostFile
    const bytePath = Buffer.from(path).toString('latin1')
    const target = Buffer.from(file.target).toString('latin1')
    if (file.kind === 'file') parts.push(tarFile(bytePath, file.bytes, file.mode))
    else parts.push(tarHeader({ path: bytePath, kind: file.kind, mode: file.mode, target }))
  }
  return Buffer.concat([...parts, tarEnd()])
}

/** Paths under /tests that a text names, relative to it. */
function namedPaths(text: string): string[] {
  const found = text.matchAll(/(?<![\w/.-])\/tests((?:\/[\w.+@-]+)*)/g)
  return [...new Set([...found].map((match) => posix.normalize(`.${match[1] ?? ''}`)))]
}

function scriptsOf(command: string, files: ReadonlyMap<string, HostFile>): string {
  return namedPaths(command)
    .filter((path) => /\.(?:sh|bash)$/.test(path))
    .map((path) => files.get(path)?.bytes.toString('utf8') ?? '')
    .join('\n')
}

const configNames = ['pytest.ini', '.pytest.ini', 'pyproject.toml', 'tox.ini', 'setup.cfg']

/** The first of pytest's own search order that lies at the top of tests/ and speaks of pytest. */
function configOf(files: ReadonlyMap<string, HostFile>): string | null {
  const found = configNames.find((name) => {
    const file = files.get(name)
    return (
      file?.kind === 'file' && (name.includes('pytest.ini') || /pytest/.test(String(file.bytes)))
    )
  })
  return found ?? null
}

const stopsEarly =
  /(?:^|[\s"'=])(?:-x|--exitfirst|--maxfail(?:=|\s+)\d+|--stepwise|--sw)(?=$|[\s"';|&)])/m

/** Puts two canaries into what the command collects: one that runs early and one that runs late. */
function plant(
  script: string,
  suite: string,
  files: Map<string, HostFile>,
  config: string | null,
  random: Random,
): Canary[] {
  const settings = config === null ? '' : (files.get(config)?.bytes.toString('utf8') ?? '')
  if (stopsEarly.test(script) || stopsEarly.test(settings))
    throw invalid(
      `the ${suite} suite stops at the first failure (-x, --maxfail, --stepwise); take that away, every test must run`,
    )
  const kindOf = (path: string): string | undefined =>
    path === '.' ? 'directory' : files.get(path)?.kind
  const named = namedPaths(script)
  // Where one named directory holds another (`--rootdir /tests /tests/functional`), the inner one is surely collected.
  const directories = named.filter(
    (path) =>
      kindOf(path) === 'directory' &&
      !named.some((other) => other !== path && (path === '.' || other.startsWith(`${path}/`))),
  )
  const modules = named.filter((path) => kindOf(path) === 'file' && path.endsWith('.py'))
  const makers = [makeCanary(random), makeCanary(random)]
  while (makers[1]?.test === makers[0]?.test) makers[1] = makeCanary(random)
  const [early, late] = makers as [(typeof makers)[0], (typeof makers)[0]]
  if (directories.length === 0 && modules.length > 0) {
    const first = modules[0] as string
    const last = modules.at(-1) as string
    appendTo(files, first, early)
    const copy = addCopy(files, last, late, random)
    if (copy === null) appendTo(files, last, late)
    return [
      { test: early.test, file: first, shared: true },
      copy ?? { test: late.test, file: last, shared: true },
    ]
  }
  const fallback = kindOf(suite) === 'directory' ? suite : '.'
  const top = directories[0] ?? fallback
  const bottom = directories.at(-1) ?? fallback
  const among = amongOwnTests(files, [top, bottom], [early.test, late.test], random)
  return [
    addCanary(files, top, 'early', early, random),
    addCanary(files, bottom, 'late', late, random),
    ...among,
  ]
}

const sharedCanaries = 3
const ownTests = /(?:^|\/)(?:test_[^/]*|[^/]*_test)\.py$/

/**
 * Canaries in files of the task's own: a reporter that clears whole files of failures clears these too, and one that
 * leaves files of a single test alone doesn't know them. One is a copy of a test there that contradicts itself, where one
 * can be copied: a reporter that clears what uses the product clears it as well.
 */
function amongOwnTests(
  files: Map<string, HostFile>,
  directories: readonly string[],
  taken: readonly string[],
  random: Random,
): Canary[] {
  const candidates = [...files.keys()].filter(
    (path) =>
      ownTests.test(path) &&
      directories.some((directory) => directory === '.' || path.startsWith(`${directory}/`)),
  )
  const names = new Set(taken)
  const planted: Canary[] = []
  const named = (): Made => {
    let canary = makeCanary(random)
    while (names.has(canary.test)) canary = makeCanary(random)
    names.add(canary.test)
    return canary
  }
  const plain: string[] = []
  // One copy is enough, for it may take as long as what it copies.
  while (planted.length === 0 && candidates.length > 0) {
    const [file = ''] = candidates.splice(random(candidates.length), 1)
    const copy = addCopy(files, file, named(), random)
    if (copy === null) plain.push(file)
    else planted.push(copy)
  }
  for (const file of [...plain, ...shuffled(candidates, random)].slice(
    0,
    sharedCanaries - planted.length,
  )) {
    const canary = named()
    appendTo(files, file, canary)
    planted.push({ test: canary.test, file, shared: true })
  }
  return planted
}

function shuffled(paths: readonly string[], random: Random): string[] {
  const left = [...paths]
  return paths.flatMap(() => left.splice(random(left.length), 1))
}

type Made = ReturnType<typeof makeCanary>

function addCanary(
  files: Map<string, HostFile>,
  directory: string,
  side: 'early' | 'late',
  canary: Made,
  random: Random,
): Canary {
  const prefix = directory === '.' ? '' : `${directory}/`
  const siblings = [...files.keys()]
    .filter((path) => path.startsWith(prefix))
    .map((path) => path.slice(prefix.length))
    .filter((name) => !name.includes('/') && !name.startsWith('.') && !name.startsWith('_'))
    .filter((name) => name !== 'conftest.py' && (name.endsWith('.py') || !name.includes('.')))
  const file = `${prefix}${canaryFileName(side, siblings, random)}`
  const imports = canary.imports === '' ? '' : `${canary.imports}\n\n`
  addFile(files, file, `${imports}${canary.source}`)
  return { test: canary.test, file, shared: false }
}

function appendTo(files: Map<string, HostFile>, path: string, canary: Made): void {
  const body = canary.source.replace('():\n', `():\n${canary.imports.replace(/^(?=.)/gm, '    ')}`)
  replaceText(files, path, (text) => `${text.replace(/\n*$/, '')}\n\n\n${body}`)
}

/** As a copy of a test that stands there; null where none can be copied. */
function addCopy(
  files: Map<string, HostFile>,
  path: string,
  { test }: Made,
  random: Random,
): Canary | null {
  const whole = withContradiction(String(files.get(path)?.bytes ?? ''), test, random)
  if (whole === null) return null
  replaceText(files, path, () => whole)
  return { test, file: path, shared: true, copy: true }
}

function replaceText(
  files: Map<string, HostFile>,
  path: string,
  edit: (text: string) => string,
): void {
  const file = files.get(path) as HostFile
  files.set(path, { ...file, bytes: Buffer.from(edit(file.bytes.toString('utf8'))) })
}
