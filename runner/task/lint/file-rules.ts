/** The files of a task: what must be there, what must not, and scripts that are looked through. */
import { withoutCanary } from '../load.ts'
import type { TaskToml } from '../schema.ts'
import { checkScript } from './command-rules.ts'
import { checkCompose, composeNames } from './compose-rules.ts'
import type { TaskDirectory } from './directory.ts'
import { checkDockerfile } from './dockerfile-rules.ts'
import type { Findings } from './finding.ts'
import { unpinnedRequirements } from './python-packages.ts'
import { credentialsIn, lineAt, secretsIn } from './secrets.ts'

export async function checkFiles(
  findings: Findings,
  directory: TaskDirectory,
  toml: TaskToml | null,
): Promise<void> {
  const { files, has } = directory
  await checkInstruction(findings, directory)
  const image = toml?.closedbook?.image ?? toml?.environment.docker_image
  if (image === undefined && toml !== null && !files.some(({ path }) => isBuild(path)))
    findings.add(
      'invalid-task-files',
      'environment/Dockerfile',
      'missing; write one, or name an image by digest in task.toml',
    )
  if (!files.some(({ path }) => path.startsWith('tests/')))
    findings.add('invalid-task-files', 'tests', 'missing or empty; put the hidden tests into it')
  else if (
    toml !== null &&
    toml.closedbook === undefined &&
    !has('tests/test.sh') &&
    !bundled(directory)
  )
    findings.add(
      'invalid-task-files',
      'tests/test.sh',
      'missing; add it, or name the suites in [closedbook.functional] of task.toml',
    )
  if (!has('solution/solve.sh'))
    findings.add(
      'missing-solution',
      'solution/solve.sh',
      'missing; without an oracle nobody has shown that the task can be done, and it cannot be qualified',
    )
  for (const { path, kind } of files) {
    if (kind === 'other')
      findings.add('invalid-task-files', path, 'a socket, pipe or device; remove it')
    if (
      /(?:^|\/)\.harborignore$/.test(path) &&
      !/^(?:steps\/[^/]+\/)?(?:tests|solution)\//.test(path)
    )
      findings.add(
        'unused-harborignore',
        path,
        'ignore rules count only inside tests/ and solution/; move it or remove it',
      )
    const text = kind === 'file' ? await directory.text(path) : null
    if (text !== null) checkText(findings, path, text, directory)
  }
}

const isBuild = (path: string): boolean =>
  path === 'environment/Dockerfile' || composeNames.some((name) => path === `environment/${name}`)

const bundled = ({ has }: TaskDirectory): boolean =>
  has('tests/Dockerfile') || composeNames.some((name) => has(`tests/${name}`))

async function checkInstruction(findings: Findings, directory: TaskDirectory): Promise<void> {
  const file = 'instruction.md'
  if (directory.has('steps/')) return
  const text = await directory.text(file)
  if (text === null) {
    if (!directory.files.some(({ path }) => path.startsWith('steps/')))
      findings.add(
        'invalid-task-files',
        file,
        'missing; write into it what the agent is asked to do',
      )
  } else if (withoutCanary(text).trim() === '')
    findings.add('invalid-task-files', file, 'empty; write into it what the agent is asked to do')
}

function checkText(findings: Findings, path: string, text: string, directory: TaskDirectory): void {
  const name = path.split('/').at(-1) ?? ''
  const top = path.split('/')[0] ?? ''
  if (/^Dockerfile(?:\.|$)/.test(name) && ['environment', 'tests'].includes(top)) {
    checkDockerfile(findings, path, text, { agent: top === 'environment' })
    return
  }
  if (composeNames.includes(name) && ['environment', 'tests'].includes(top))
    checkCompose(findings, path, text, directory)
  if (/^requirements[\w.-]*\.txt$/.test(name) && ['environment', 'tests'].includes(top))
    for (const { line, requirement } of unpinnedRequirements(text))
      findings.add(
        'unpinned-python-dependency',
        path,
        `${requirement}: write an exact version (name==1.2.3)`,
        line,
      )
  if (/\.(?:sh|bash)$/.test(name) && ['tests', 'solution', 'environment'].includes(top))
    checkScript(
      findings,
      path,
      text,
      top === 'tests' ? 'tests' : top === 'solution' ? 'solution' : 'image',
    )
  for (const { kind, shown, index } of [...secretsIn(text), ...credentialsIn(path, text)])
    findings.add(
      'baked-secret',
      path,
      `${kind} ${shown}`.trim() + ': take it out of the task, and revoke it if it was real',
      lineAt(text, index),
    )
}
