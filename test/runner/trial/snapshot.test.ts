/** What a snapshot of a container takes, planned from the engine's list of changes. No engine. */
import t from 'tap'
import type { FileChange } from '../../../daemon/protocol/lease.ts'
import { RunnerError } from '../../../runner/errors.ts'
import { withinLimit } from '../../../runner/trial/deadline.ts'
import { planSnapshot } from '../../../runner/trial/snapshot-plan.ts'

const kinds = { A: 'added', C: 'modified', D: 'deleted' } as const
const changesOf = (lines: string): FileChange[] =>
  lines
    .trim()
    .split('\n')
    .map((line) => line.trim())
    .map((line) => ({ kind: kinds[line[0] as keyof typeof kinds], path: line.slice(2) }))

/** As `docker diff` prints it; then reads (with ! for the path alone), directories and deletions. */
const rows: readonly (readonly [string, string, string, string, string])[] = [
  ['a changed file', 'C /app\nC /app/a', '/app/a!', '/app', ''],
  ['a new file', 'C /app\nA /app/b', '/app/b', '/app', ''],
  [
    'a new directory is one read, whatever is in it',
    'C /srv\nA /srv/x\nA /srv/x/y\nA /srv/x/y/z\nA /srv/x/f',
    '/srv/x',
    '/srv',
    '',
  ],
  ['a directory of which only the mode changed', 'C /var\nC /var/lib', '/var/lib!', '/var', ''],
  ['a deleted file', 'C /app\nD /app/a', '', '/app', '/app/a'],
  [
    'a deleted directory with all that was in it',
    'C /app\nD /app/d\nD /app/d/x',
    '',
    '/app',
    '/app/d',
  ],
  [
    'a directory that was removed and made again',
    'C /app\nD /app/d\nA /app/d/new\nC /app/d/old',
    '/app/d/new /app/d/old!',
    '/app /app/d',
    '/app/d',
  ],
  [
    'what grading fills itself, and what the engine mounts',
    `A /tests\nA /tests/conftest.py\nA /logs\nA /logs/agent\nA /logs/agent/o.txt\nA /logs/verifier
     A /logs/verifier/reward.json\nA /logs/artifacts\nC /etc\nC /etc/hosts\nA /solution\nA /solution/s
     A /.closedbook\nA /.closedbook/init\nA /mine\nA /mine/x\nC /dev\nA /dev/console`,
    '',
    '',
    '',
  ],
  [
    'artifacts in the directory that we made',
    'A /logs\nA /logs/verifier\nA /logs/artifacts\nA /logs/artifacts/a',
    '/logs/artifacts/a',
    '',
    '',
  ],
  [
    'a directory that holds what does not count',
    'A /logs\nA /logs/own\nA /logs/own/f\nA /logs/agent\nC /mnt\nA /mnt/in\nA /mnt/in/mine\nA /mnt/in/f',
    '/logs/own /mnt/in',
    '/mnt',
    '',
  ],
]

void t.test('a snapshot takes what the agent changed and nothing else', (t) => {
  for (const [why, changes, reads, directories, deleted] of rows) {
    const plan = planSnapshot(changesOf(changes), ['/mine'])
    const shown = plan.reads.map(({ path, take }) => `${path}${take === 'alone' ? '!' : ''}`)
    t.equal(shown.join(' '), reads, `${why}: reads`)
    t.equal(plan.directories.join(' '), directories, `${why}: directories`)
    t.equal(plan.deleted.join(' '), deleted, `${why}: deleted`)
  }
  const nested = planSnapshot(changesOf('A /opt/x\nA /opt/x/mine\nA /opt/x/mine/m\nA /opt/x/f'), [
    '/opt/x/mine',
  ])
  t.match(nested, { reads: [{ path: '/opt/x/f', take: 'whole' }], directories: ['/opt/x'] })
  t.end()
})

void t.test('many paths side by side are one read; names that were lost are said', (t) => {
  const many = Array.from({ length: 40 }, (_, index) => ({
    path: `/lib/x/${index}`,
    kind: 'added' as const,
  }))
  const plan = planSnapshot([
    { path: '/lib/x', kind: 'modified' },
    ...many,
    { path: '/lib/x/m', kind: 'modified' },
    { path: '/lib/\ufffd', kind: 'added' },
  ])
  t.equal(plan.reads.length, 1)
  const take = plan.reads[0]?.take
  t.ok(
    take instanceof Map &&
      take.size === 41 &&
      take.get('7') === 'whole' &&
      take.get('m') === 'alone',
  )
  t.strictSame(plan.skipped, [{ path: '/lib/\ufffd', why: 'its name is not UTF-8' }])
  t.end()
})

void t.test('a collection that hangs is infra; one that is interrupted is not', async (t) => {
  // A timer of AbortSignal keeps no process alive, and nothing else is under way here.
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => clearInterval(alive))
  const never = () => new Promise<never>(() => {})
  const limit = { limitMs: 20, what: 'collecting' }
  await t.rejects(withinLimit({ ...limit, signal: new AbortController().signal }, never), {
    code: 'collect_failed',
    blame: 'infra',
    message: /collecting did not end within 0\.02 s/,
  })
  const why = new Error('interrupted')
  await t.rejects(withinLimit({ ...limit, signal: AbortSignal.abort(why) }, never), why)
  const own = new RunnerError('transfer_failed', 'infra', 'broken')
  const signal = new AbortController().signal
  await t.rejects(
    withinLimit({ ...limit, limitMs: 60_000, signal }, () => Promise.reject(own)),
    own,
  )
  t.equal(await withinLimit({ ...limit, limitMs: 60_000, signal }, async () => 7), 7)
})
