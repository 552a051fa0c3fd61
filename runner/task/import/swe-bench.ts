/**
 * A SWE-bench-style instance as a task directory. Its test patch is laid over the tree in the verifier's fresh
 * container, after the files that it touches were put back to the base commit; then the same files are run for both
 * suites, each with its own expected ids. Ids of pytest become those of its JUnit report.
 */
import { RunnerError } from '../../errors.ts'
import type { TemplateFile } from '../init/template.ts'
import type { Instance } from './instances.ts'
import { tomlTable } from './toml-text.ts'

export interface SweBenchOptions {
  /** Pinned, or as it was given. */
  readonly image: string
  readonly workdir: string
  readonly area?: string | undefined
  readonly source?: { readonly kind: string; readonly ref: string } | undefined
  readonly hardware: 'cpu' | 'h100'
  /** For test suites that are not pytest's; `{results}` and `{files}` are filled in. */
  readonly testCommand?: string | undefined
  readonly results?: string | undefined
}

export function sweBenchFiles(instance: Instance, options: SweBenchOptions): TemplateFile[] {
  const paths = patchedPaths(instance.test_patch)
  if (paths.length === 0) throw unusable(instance, 'its test_patch touches no file')
  const ids = [...instance.FAIL_TO_PASS, ...instance.PASS_TO_PASS]
  const own = options.testCommand !== undefined
  const odd = own ? undefined : ids.find((id) => !isPytestId(id))
  if (odd !== undefined)
    throw unusable(
      instance,
      `"${odd}" is no id of pytest (file.py::name); give --test-command and --results for its own runner`,
    )
  const files = own
    ? paths.filter(({ state }) => state !== 'deleted').map(({ path }) => path)
    : ids.map((id) => id.split('::')[0] ?? '')
  const expected = (list: readonly string[]): string =>
    [...new Set(own ? list : list.map(junitId))].map((id) => `${id}\n`).join('')
  return [
    { path: 'task.toml', text: taskToml(instance, options) },
    { path: 'instruction.md', text: instruction(instance, options) },
    { path: 'solution/solution.patch', text: ended(instance.patch) },
    { path: 'solution/solve.sh', text: solve, executable: true },
    { path: 'tests/run.sh', text: runScript(instance, options), executable: true },
    { path: 'tests/test.patch', text: ended(instance.test_patch) },
    { path: 'tests/put-back.txt', text: lines(paths.filter(({ state }) => state !== 'added')) },
    { path: 'tests/take-away.txt', text: lines(paths.filter(({ state }) => state === 'added')) },
    { path: 'tests/files.txt', text: [...new Set(files)].map((file) => `${file}\n`).join('') },
    ...(['functional', 'regression'] as const).flatMap((suite) => {
      const list = suite === 'functional' ? instance.FAIL_TO_PASS : instance.PASS_TO_PASS
      if (list.length === 0) return []
      return [
        { path: `tests/${suite}/README.md`, text: `The ${suite} suite: see run.sh.\n` },
        { path: `tests/expected/${suite}.txt`, text: expected(list) },
      ]
    }),
  ]
}

const unusable = ({ instance_id }: Instance, why: string): RunnerError =>
  new RunnerError('task_invalid', 'task', `${instance_id}: ${why}`)

const isPytestId = (id: string): boolean => /^[^\s:]+\.py::\S/.test(id)

/** `a/b.py::Class::test[x]` is `a.b.Class::test[x]` in pytest's JUnit report. */
export function junitId(id: string): string {
  const bracket = id.indexOf('[')
  const plain = bracket === -1 ? id : id.slice(0, bracket)
  const parts = plain.split('::')
  const module = (parts[0] ?? '').replace(/\.py$/, '').replaceAll('/', '.')
  const name = `${parts.at(-1)}${bracket === -1 ? '' : id.slice(bracket)}`
  return `${[module, ...parts.slice(1, -1)].join('.')}::${name}`
}

export interface PatchedPath {
  readonly path: string
  readonly state: 'added' | 'changed' | 'deleted'
}

export function patchedPaths(patch: string): PatchedPath[] {
  const found: PatchedPath[] = []
  let before = ''
  for (const line of patch.split('\n')) {
    const from = /^--- (?:a\/)?(.+?)\t?$/.exec(line)?.[1]
    const to = /^\+\+\+ (?:b\/)?(.+?)\t?$/.exec(line)?.[1]
    if (from !== undefined) before = from
    if (to === undefined || before === '') continue
    if (to === '/dev/null') found.push({ path: before, state: 'deleted' })
    else found.push({ path: to, state: before === '/dev/null' ? 'added' : 'changed' })
    before = ''
  }
  return found
}

const lines = (paths: readonly PatchedPath[]): string =>
  paths.map(({ path }) => `${path}\n`).join('')
const ended = (text: string): string => (text.endsWith('\n') ? text : `${text}\n`)

function taskToml(instance: Instance, options: SweBenchOptions): string {
  const [owner = 'repo'] = instance.repo.split('/')
  const suite = (name: string): string =>
    tomlTable(`closedbook.${name}`, {
      command: `bash /tests/run.sh {results} /tests/${name}`,
      results: options.results ?? 'junit',
      expected_file: `tests/expected/${name}.txt`,
    })
  return [
    'schema_version = "1.4"\n',
    tomlTable('task', {
      name: `${owner}/${instance.instance_id}`,
      description: `${instance.repo} at ${instance.base_commit.slice(0, 12)}`,
    }),
    tomlTable('metadata.swe_bench', {
      instance_id: instance.instance_id,
      repo: instance.repo,
      version: instance.version,
      environment_setup_commit: instance.environment_setup_commit,
      created_at: instance.created_at === undefined ? undefined : String(instance.created_at),
    }),
    tomlTable('environment', {
      workdir: options.workdir,
      cpus: 2,
      memory_mb: 4096,
      network_mode: 'no-network',
    }),
    tomlTable('agent', { timeout_sec: 3600 }),
    tomlTable('verifier', { timeout_sec: 1800 }),
    tomlTable('closedbook', {
      hardware: options.hardware,
      image: options.image,
      workdir: options.workdir,
      base_commit: instance.base_commit,
      verify: 'patch',
      source: options.source,
      area: options.area,
    }),
    suite('functional'),
    ...(instance.PASS_TO_PASS.length === 0 ? [] : [suite('regression')]),
  ].join('\n')
}

const instruction = (instance: Instance, { workdir }: SweBenchOptions): string =>
  `The repository in \`${workdir}\` is ${instance.repo}. Resolve the issue below by changing its code; hidden tests check the result.\n\n${ended(instance.problem_statement.trim())}`

const solve = `#!/bin/bash
# The reference patch, in the workdir. Never seen by an agent.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
git -c safe.directory='*' apply --whitespace=nowarn "$here/solution.patch" || patch --batch --fuzz=5 -p1 -i "$here/solution.patch"
`

const runScript = (instance: Instance, options: SweBenchOptions): string => `#!/bin/bash
# run.sh RESULTS DIRECTORY: puts the test files back to the base commit, lays the test patch over them, and runs them.
# DIRECTORY holds the canaries of the suite. Which ids count is in expected/.
set -eu
results=$1 suite=$2
cd ${shellWord(options.workdir)}
if [ -f /opt/miniconda3/bin/activate ]; then set +u; . /opt/miniconda3/bin/activate testbed; set -u; fi
git() { command git -c safe.directory='*' "$@"; }
while IFS= read -r path; do git checkout --quiet ${instance.base_commit} -- "$path"; done </tests/put-back.txt
while IFS= read -r path; do rm -rf -- "$path"; done </tests/take-away.txt
git apply --whitespace=nowarn /tests/test.patch
mapfile -t files </tests/files.txt
${command(options)}
`

function command({ testCommand, workdir }: SweBenchOptions): string {
  if (testCommand !== undefined)
    return testCommand.replaceAll('{results}', '"$results"').replaceAll('{files}', '"${files[@]}"')
  return `python -m pytest -q -p no:cacheprovider --continue-on-collection-errors --rootdir=${shellWord(workdir)} --junitxml="$results" "\${files[@]}" "$suite"`
}

const shellWord = (text: string): string =>
  /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
