/** The suites: whether a vanished test would be missed, whether a forged report would show, and what needs a network. */
import { messageOf, RunnerError } from '../../errors.ts'
import { prepareSuite } from '../../trial/suite-bundle.ts'
import type { Suite, Task } from '../task.ts'
import { checkLine, isOutsideHost } from './command-rules.ts'
import type { TaskDirectory } from './directory.ts'
import type { Findings } from './finding.ts'
import { lineOfKey } from '../toml-lines.ts'

export async function checkSuites(
  findings: Findings,
  directory: TaskDirectory,
  task: Task | null,
): Promise<void> {
  for (const { path, kind } of directory.files) {
    if (kind !== 'file' || !/^tests\/.*\.(?:py|[cm]?[jt]s|sh|rs|go)$/.test(path)) continue
    const text = await directory.text(path)
    if (text !== null) checkTestText(findings, path, text)
  }
  if (task === null) return
  const { functional, regression } = task.suites
  if (regression === null)
    findings.add(
      'missing-regression-suite',
      'task.toml',
      'nothing tests what must stay as it is: add [closedbook.regression]',
      lineOfKey(directory.tomlText ?? '', ['closedbook']),
    )
  for (const suite of [functional, regression])
    if (suite !== null) await checkSuite(findings, directory, task, suite)
}

async function checkSuite(
  findings: Findings,
  directory: TaskDirectory,
  task: Task,
  suite: Suite,
): Promise<void> {
  const line = lineOfKey(directory.tomlText ?? '', ['closedbook', suite.name, 'command'])
  checkLine(findings, 'task.toml', line, suite.command, 'tests')
  if (suite.expected === null)
    findings.add(
      'missing-expected-tests',
      'task.toml',
      `the ${suite.name} suite lists no expected ids, so a test that vanishes is not missed: qualify the task (\`closedbook qualify\` records them), or set expected_file`,
      line,
    )
  try {
    const { note } = await prepareSuite({ testsDir: task.testsDir, suite })
    if (note !== null)
      findings.add(
        'no-canaries',
        'task.toml',
        `the ${suite.name} suite gets ${note}; a report that the code under test forges would count`,
        line,
      )
  } catch (error) {
    if (!(error instanceof RunnerError)) throw error
    findings.add('invalid-task-config', 'task.toml', messageOf(error), line)
  }
}

const calls: readonly RegExp[] = [
  /\b(?:requests|httpx|aiohttp|session|client|http)\.(?:get|post|put|patch|delete|head|request|stream)\(\s*(?:["']\w+["'],\s*)?[rf]*["'`](https?:\/\/[^"'`\s]+)/,
  /\b(?:urlopen|urlretrieve|Request|fetch)\(\s*[rf]*["'`](https?:\/\/[^"'`\s]+)/,
  /\bcreate_connection\(\s*\(\s*["']([\w.-]+)["']/,
]
const hubs =
  /\b(?:hf_hub_download|snapshot_download|load_dataset)\(|\bfrom_pretrained\(\s*["'][\w.-]+\/[\w.-]+["']/

function checkTestText(findings: Findings, path: string, text: string): void {
  for (const [index, raw] of text.split('\n').entries()) {
    if (/^\s*(?:#|\/\/)/.test(raw) || raw.length > 4000) continue
    const target = calls.map((call) => call.exec(raw)?.[1]).find((found) => found !== undefined)
    const host = target === undefined ? undefined : /^(?:https?:\/\/)?([^/:?#]+)/.exec(target)?.[1]
    if (host !== undefined && isOutsideHost(host))
      findings.add(
        'tests-need-network',
        path,
        `speaks to ${host}, and suites run offline: serve it on loopback, or record the answer in tests/`,
        index + 1,
      )
    else if (hubs.test(raw) && !/^\s*(?:from|import|def)\b|local_files_only\s*=\s*True/.test(raw))
      findings.add(
        'tests-need-network',
        path,
        'reads from the Hub, and suites run offline: put the files into the image and read them by path',
        index + 1,
      )
  }
}
