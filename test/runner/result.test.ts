import { readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { RunnerError } from '../../runner/errors.ts'
import { exitCode, exitCodeMeanings, exitCodeOf } from '../../runner/exit-codes.ts'
import { writeFileAtomic } from '../../runner/json-file.ts'
import {
  readResult,
  resultSchema,
  suiteNotRun,
  writeResult,
  type TrialResult,
} from '../../runner/result.ts'
import { textDigest } from '../../runner/task/tree.ts'
import { sampleResult } from './support/result.ts'
import { Scratch, failureOf } from './support/scratch.ts'

void t.test('the names of a result are those that were promised', (t) => {
  const result = sampleResult()
  const names = (value: object) => Object.keys(value).join(' ')
  t.equal(
    names(result),
    'schema trial job task configuration run verdict blame reason suites tests usage costUsd steps wallTimeMs phasesMs egress proof assisted digests host gpus executions startedAt endedAt closedbookVersion reported',
  )
  t.equal(names(result.task), 'name digest area hardware')
  t.equal(names(result.configuration), 'name model harness settings')
  t.equal(names(result.suites.functional), 'planned passed failed missing command exit')
  t.equal(names(result.usage), 'inputTokens cachedInputTokens outputTokens reasoningTokens calls')
  t.equal(names(result.phasesMs), 'queue lease agent freeze collect verify close')
  t.equal(names(result.digests), 'image harness policy instruction patch tests')
  t.strictSame(resultSchema.parse(result), result, 'and the schema takes exactly these')
  t.end()
})

void t.test('a result is written whole and read back the same', async (t) => {
  await using scratch = await Scratch.make()
  const path = join(scratch.path, 'trials/t1/result.json')
  const digest = await writeResult(path, sampleResult())
  t.strictSame(await readResult(path), sampleResult())
  t.equal(digest, textDigest(await readFile(path)))
  t.strictSame(
    await readdir(join(scratch.path, 'trials/t1')),
    ['result.json'],
    'nothing is left beside it',
  )
})

const full = { planned: 1, passed: 1, failed: 0, missing: 0, command: 'x', exit: { code: 0 } }
const bad: readonly (readonly [string, unknown, RegExp])[] = [
  ['an unknown name', { ...sampleResult(), extra: 1 }, /unknown key "extra"/],
  ['another schema', { ...sampleResult(), schema: 'closedbook.result/2' }, /schema: /],
  [
    'a pass with blame',
    sampleResult({ blame: 'agent' }),
    /blame: a passed trial has blame null, not agent/,
  ],
  [
    'a failure without',
    sampleResult({ verdict: 'failed' }),
    /blame: a failed trial has blame agent, not null/,
  ],
  [
    'a void by the agent',
    sampleResult({ verdict: 'void', blame: 'agent' }),
    /a void trial has blame infra, task, operator/,
  ],
  [
    'an assisted trial that counts',
    sampleResult({ assisted: true }),
    /assisted: an assisted trial is void/,
  ],
  [
    'counts that do not add up',
    sampleResult({
      suites: { functional: { ...full, planned: 2 }, regression: suiteNotRun(null, 0) },
    }),
    /suites\.functional: passed \+ failed \+ missing must be planned/,
  ],
  [
    'an exit that is a bare number',
    { ...sampleResult(), suites: { functional: { ...full, exit: 0 }, regression: full } },
    /suites\.functional\.exit: /,
  ],
  ['a run of zero', sampleResult({ run: 0 }), /run: /],
  ['no execution', sampleResult({ executions: [] }), /executions: /],
  [
    'a digest without its kind',
    { ...sampleResult(), digests: { ...sampleResult().digests, image: 'a'.repeat(64) } },
    /digests\.image: sha256: and 64 hex/,
  ],
  ['a negative cost', sampleResult({ costUsd: -1 }), /costUsd: /],
  ['a cost that is no number', sampleResult({ costUsd: Number.NaN }), /costUsd: /],
]

void t.test('a result that breaks the contract is neither written nor read', async (t) => {
  await using scratch = await Scratch.make()
  const path = join(scratch.path, 'result.json')
  for (const [what, result, message] of bad) {
    const error = await failureOf(() => writeResult(path, result as TrialResult))
    t.match(error, { code: 'result_invalid', message }, what)
    await writeFile(path, JSON.stringify(result))
    t.match(await failureOf(() => readResult(path)), { code: 'result_invalid' }, `${what}, read`)
  }
  await writeFile(path, '{"schema": "closed')
  t.match(await failureOf(() => readResult(path)), {
    code: 'result_invalid',
    message: /is not JSON/,
  })
  t.match(await failureOf(() => readResult(join(scratch.path, 'none.json'))), {
    code: 'result_missing',
    message: /the trial has not ended, or its job was moved/,
  })
})

void t.test('a file that can not be written leaves the old one and says why', async (t) => {
  await using scratch = await Scratch.make()
  const path = await scratch.write('a.json', 'old')
  await writeFileAtomic(path, 'new')
  t.equal(await readFile(path, 'utf8'), 'new')
  const error = await failureOf(() => writeFileAtomic(join(path, 'below'), 'x'))
  t.match(error, { code: 'write_failed', message: /can't write .*a\.json\/below: / })
  t.equal(exitCodeOf(error), exitCode.cannotWrite)
  const full = await failureOf(() => writeFileAtomic('/dev/full/x', 'x'))
  t.match(full, { code: 'write_failed' })
  t.strictSame(await readdir(scratch.path), ['a.json'])
})

void t.test('every exit status has one meaning, and errors map to them', (t) => {
  const codes = exitCodeMeanings.map(([code]) => code)
  t.strictSame(codes, Object.values(exitCode))
  t.equal(exitCodeOf(new RunnerError('job_locked', 'operator', 'x')), exitCode.temporary)
  t.equal(exitCodeOf(new RunnerError('task_invalid', 'task', 'x')), exitCode.data)
  t.equal(exitCodeOf(new RunnerError('daemon_unreachable', 'infra', 'x')), exitCode.unavailable)
  t.equal(exitCodeOf(new RunnerError('verify_failed', 'infra', 'x')), exitCode.failure)
  t.equal(exitCodeOf(new TypeError('x')), exitCode.software)
  t.end()
})
