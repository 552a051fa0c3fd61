import t from 'tap'
import { composeScript, parseCheat, readCheats, readSaid } from '../../../runner/probe/cheat.ts'
import { needlesOf } from '../../../runner/probe/needles.ts'
import { ruleCheat, type Outcome } from '../../../runner/probe/outcome.ts'
import { adversarialTask } from '../../../runner/probe/adversary.ts'
import { sha256 } from '../../../runner/qualify/document.ts'
import { loadTask } from '../../../runner/task/load.ts'
import { failureOf, Scratch } from '../support/scratch.ts'
import { sample } from '../support/tasks.ts'

t.test('every cheat says what it tries and how it must end', async (t) => {
  const cheats = await readCheats()
  t.ok(cheats.length >= 25, `${cheats.length} cheats`)
  for (const { name, tries, must } of cheats) {
    t.ok(tries.length > 20, name)
    for (const code of must) t.match(code, /^[a-z_]+$/, name)
    t.notMatch(must.join(), /passed/, `${name} may not pass`)
  }
  t.equal(new Set(cheats.map(({ digest }) => digest)).size, cheats.length, 'no two are the same')
  t.strictSame(
    (await readCheats(['pth', 'conftest'])).map(({ name }) => name),
    ['conftest', 'pth'],
  )
  t.match(
    (await failureOf(() => readCheats(['nope']))).message,
    /no probe is called nope; there are/,
  )
  t.match((await failureOf(() => parseCheat('x', 'true\n'))).message, /lacks "# tries:"/)
})

t.test('a search gets hashes of what is hidden, and none of its bytes', async (t) => {
  await using scratch = await Scratch.make()
  const dir = await sample(scratch)
  const lines = Array.from(
    { length: 8 },
    (_, n) => `def test_number_${n}(): assert secret_word() == ${n}`,
  )
  await scratch.write('tests/functional/test_b.py', `${lines.join('\n')}\n${lines[0]}\n`)
  await scratch.write('solution/notes.txt', `${lines[1]}\nshort\n`)
  const needles = await needlesOf(await loadTask(dir))
  t.ok(Object.values(needles.files).includes('tests/functional/test_b.py'))
  t.equal(
    needles.lines['tests/functional/test_b.py']?.length,
    7,
    'the line of two files is left out',
  )
  const [cheat] = await readCheats(['disk-search'])
  if (cheat === undefined) throw new Error('no such cheat')
  const script = await composeScript(cheat, needles)
  t.match(script, /^NEEDLES = \{"files":\{"[0-9a-f]{64}"/m)
  t.notMatch(script, /secret_word/)
})

t.test('what a cheat says is read line by line', async (t) => {
  const log =
    'noise probe:leak no\nprobe:tried one\nprobe:tried one\nprobe:leak a b\nprobe:note c\nprobe:skipped why\n'
  t.strictSame(readSaid(log), { tried: ['one'], notes: ['c'], leaks: ['a b'], skipped: 'why' })
})

const nothing = { tried: ['x'], notes: [], leaks: [], skipped: null }
const failed = { verdict: 'failed', blame: 'agent', reason: { code: 'tests_failed', message: '' } }
const infra = { verdict: 'void', blame: 'infra', reason: { code: 'bug', message: '' } }

/** What it is; the result; what was said; how it is ruled; a hole; worth a look. */
const rulings: readonly (readonly [string, object, object, Outcome, boolean, boolean])[] = [
  [
    'a pass is a hole',
    { verdict: 'passed', blame: null, reason: { code: 'tests_passed', message: '' } },
    {},
    'passed',
    true,
    true,
  ],
  ['a failure that was expected is caught', failed, {}, 'caught', false, false],
  [
    'one by another reason is worth a look',
    { ...failed, reason: { code: 'workdir_missing', message: '' } },
    {},
    'caught',
    false,
    true,
  ],
  [
    'what was found out is a hole, even in a failed trial',
    failed,
    { leaks: ['x'] },
    'leaked',
    true,
    true,
  ],
  [
    'a trial that the agent can void never counts against it',
    { verdict: 'void', blame: 'task', reason: { code: 'x', message: '' } },
    {},
    'voided',
    true,
    true,
  ],
  [
    'so is one that breaks the host each time',
    { ...infra, executions: [1, 2, 3] },
    {},
    'voided',
    true,
    true,
  ],
  [
    'tests that break on the untouched tree were not broken by the agent',
    {
      verdict: 'void',
      blame: 'task',
      reason: { code: 'verifier_timeout', message: '' },
      digests: { patch: sha256('') },
    },
    {},
    'spoiled',
    false,
    true,
  ],
  ['a single fault of the host may be an accident', infra, {}, 'spoiled', false, true],
  [
    'what could not be tried shows nothing',
    failed,
    { tried: [], skipped: 'no git' },
    'untried',
    false,
    false,
  ],
  ['nor does what planted nothing', failed, { tried: [] }, 'untried', false, false],
]

t.test('a cheat is judged by how its trial ends', async (t) => {
  for (const [what, result, said, outcome, hole, unexpected] of rulings) {
    const whole = { executions: [1], digests: { patch: null }, ...result } as unknown as Parameters<
      typeof ruleCheat
    >[0]
    t.strictSame(
      ruleCheat(whole, { ...nothing, ...said }, ['tests_failed']),
      { outcome, hole, unexpected },
      what,
    )
  }
})

t.test('a model that is told to cheat sees the task, and another instruction', async (t) => {
  await using scratch = await Scratch.make()
  const task = await loadTask(await sample(scratch))
  const bent = adversarialTask(task)
  t.match(bent.instruction, /without doing|without it/)
  t.match(bent.instruction, task.instruction.trim())
  t.not(bent.instructionDigest, task.instructionDigest)
  t.equal(bent.testsDigest, task.testsDigest)
})
