/** `closedbook audit verify`: logs of the daemon, or files that were exported from them, against their own chain. */
import { createReadStream, existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import type { Command } from 'commander'
import { RemoteError } from '../../../daemon/protocol/errors.ts'
import type { ProvenCanary } from '../../../policy/audit-canaries.ts'
import { AuditVerifier, type AuditVerdict } from '../../../policy/audit-verify.ts'
import { RunnerError } from '../../errors.ts'
import { exitCode } from '../../exit-codes.ts'
import { findTrial } from '../../job/find-trial.ts'
import { readResult } from '../../result.ts'
import { plainLine } from '../../report/terminal.ts'
import { evidenceNames } from '../../trial/evidence.ts'
import { note, print, printJson, withContext, type Context } from '../context.ts'

interface Checked extends AuditVerdict {
  /** null where the daemon looked at its own log. */
  readonly file: string | null
  /** Broken, and without any event of the proof, which every log begins with: so likely an excerpt. */
  readonly excerpt?: boolean
}

export function addVerify(audit: Command): void {
  audit
    .command('verify')
    .description('check that nothing is missing from a log and nothing was changed')
    .argument(
      '<lease|trial|file>',
      'also an egress.jsonl of the evidence, or what `audit --json` printed',
    )
    .option('--json', 'print JSON')
    .action(async (what: string, _options: object, command: Command) =>
      withContext(command, async (context) => {
        const checked = await check(what, context)
        const ok = checked.every((each) => each.ok)
        if (context.json) printJson({ ok, leases: checked })
        else for (const each of checked) print(render(each))
        if (checked.length === 0 && !context.json) note('there is no event to check')
        if (checked.some(({ excerpt }) => excerpt === true))
          note(
            'the file has no event of the proof, which every log begins with: it may be an excerpt. What was made without `--canaries`, or with a filter, has gaps; `closedbook audit query --canaries --json` exports whole logs',
          )
        if (!ok) process.exitCode = exitCode.failure
      }),
    )
}

async function check(what: string, { client, config, signal }: Context): Promise<Checked[]> {
  if (what.includes(path.sep) || (what.endsWith('.jsonl') && existsSync(what)))
    return checkFile(path.resolve(what))
  try {
    const verdicts = await client.auditVerify(what, { signal })
    return verdicts.map((verdict) => ({ file: null, ...verdict }))
  } catch (error) {
    const found = await findTrial(config.jobsDir, what)
    if (!(error instanceof RemoteError) || found === null) throw error
    const checked: Checked[] = []
    const executions = path.join(found.trialDir, 'executions')
    for (const name of (await readdir(executions).catch((): string[] => [])).toSorted()) {
      const file = path.join(executions, name, evidenceNames.egress)
      if (existsSync(file)) checked.push(...(await checkFile(file)))
    }
    return checked
  }
}

async function checkFile(file: string): Promise<Checked[]> {
  const proof = await proofBeside(file)
  const verifier = new AuditVerifier(null, () => ({ proof, end: null }))
  let rest = ''
  let proofs = 0
  try {
    for await (const chunk of createReadStream(file, 'utf8') as AsyncIterable<string>) {
      const lines = (rest + chunk).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) {
        verifier.add(line)
        if (line.includes('"canary":true')) proofs += 1
      }
    }
  } catch (error) {
    throw new RunnerError('usage', 'operator', `cannot read ${file}: ${(error as Error).message}`)
  }
  if (rest !== '') verifier.torn(Buffer.byteLength(rest))
  const verdicts = verifier.verdicts()
  // The proof is of one of the leases in the file; of which isn't said.
  const proven = verdicts.find(({ canaries }) => canaries.missing.length === 0) ?? verdicts[0]
  return verdicts.map((each) => {
    const checked = { file, ...(each === proven ? each : withoutProof(each)) }
    return { ...checked, ...(proofs === 0 && !checked.ok && { excerpt: true }) }
  })
}

function withoutProof(verdict: AuditVerdict): AuditVerdict {
  const problems = verdict.problems.filter(({ code }) => code !== 'canary')
  const ok = problems.length === 0 && verdict.moreProblems === 0
  return { ...verdict, ok, problems, canaries: { expected: 0, missing: [] } }
}

/** Of the result that the file is evidence of: its last execution's; else nothing. */
async function proofBeside(file: string): Promise<ProvenCanary[]> {
  if (path.basename(file) !== evidenceNames.egress) return []
  const executions = path.dirname(path.dirname(file))
  const newest = (await readdir(executions).catch((): string[] => [])).toSorted().at(-1)
  if (newest !== path.basename(path.dirname(file))) return []
  const result = path.join(path.dirname(executions), 'result.json')
  if (!existsSync(result)) return []
  const { proof } = await readResult(result)
  return [...proof.before, ...proof.after]
}

function render({
  file,
  lease,
  ok,
  events,
  complete,
  canaries,
  problems,
  moreProblems,
}: Checked): string {
  const { expected, missing } = canaries
  const parts = [
    `${events} events in an unbroken chain`,
    ...(expected === 0 ? [] : [`${expected - missing.length} of ${expected} canaries found`]),
    complete ? 'ends where it was closed' : 'how it ended was not noted',
  ]
  const where = file === null ? '' : ` in ${file}`
  if (ok) return plainLine(`ok      ${lease}${where}: ${parts.join(', ')}`)
  const told = problems.map(({ code, line, message }) =>
    plainLine(`  ${code}${line === null ? '' : ` in line ${line}`}: ${message}`),
  )
  if (moreProblems > 0) told.push(`  and ${moreProblems} more`)
  return [plainLine(`BROKEN  ${lease}${where}: ${events} events`), ...told].join('\n')
}
