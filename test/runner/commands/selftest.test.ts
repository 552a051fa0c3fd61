/** `closedbook selftest` on a real daemon, and what it makes of attempts that end otherwise. */
import t from 'tap'
import { busyboxImage } from '../../../images/busybox-image.ts'
import { ensureTools } from '../../../images/tools.ts'
import type { AuditEvent } from '../../../policy/audit-event.ts'
import {
  attemptProgram,
  judgeAttempts,
  type Attempt,
  type AttemptResult,
} from '../../../runner/selftest/attempt.ts'
import { kernelAttempts } from '../../../runner/selftest/kernel-attempts.ts'
import { modelAttempts } from '../../../runner/selftest/model-attempts.ts'
import { networkAttempts } from '../../../runner/selftest/network-attempts.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())
const daemon = await TestDaemon.open(engine.socketPath)
t.teardown(() => daemon[Symbol.asyncDispose]())

interface Told {
  readonly ok: boolean
  readonly lease: string
  readonly image: string
  readonly attempts: readonly AttemptResult[]
  readonly counts: { readonly tried: number; readonly failed: number; readonly untried: number }
}

void t.test(
  'every attempt ends as expected, by root and by a user, and leaves its event',
  async (t) => {
    const { busyboxPath } = await ensureTools(daemon.stateDir, {})
    const { id } = await busyboxImage({ engine: engine.engine, busyboxPath })
    const again = await busyboxImage({ engine: engine.engine, busyboxPath })
    t.equal(again.id, id, 'the image is made once')
    const result = await daemon.cli(['selftest', '--image', id, '--json'])
    const told = JSON.parse(result.stdout) as Told
    t.strictSame(
      told.attempts.filter(({ ok }) => ok !== true),
      [],
    )
    t.match(told, { ok: true, image: id, counts: { failed: 0, untried: 0 } })
    t.equal(result.code, 0)
    t.ok(told.counts.tried > 150, `${told.counts.tried} attempts`)
    const recorded = told.attempts.filter(({ audited }) => audited !== '-')
    t.ok(recorded.length > 100, `${recorded.length} of them recorded`)
    t.strictSame(await daemon.client.leases(), [], 'its sandbox is gone')
    const { attempts } = (await Array.fromAsync(daemon.client.audit(told.lease))).reduce(
      (sum, { canary, kind, count }) => ({
        attempts: sum.attempts + (canary === true || kind === 'close' ? 0 : count),
      }),
      { attempts: 0 },
    )
    t.ok(attempts >= 90, `${attempts} attempts in its log`)
  },
)

void t.test('without an image it takes what is at hand, and shows a table', async (t) => {
  const { code, stdout, stderr } = await daemon.cli(['selftest'])
  t.equal(code, 0)
  t.match(stdout, /attempt +│ user +│ expected +│ seen +│ audited/)
  t.match(stdout, /ok +│ SSH +│ 0 +│ closed without a byte +│ = +│ direct_tcp/)
  t.match(stdout, /ok +│ proof: metadata/)
  t.match(stderr, /^(\d+) of \1 attempts ended as expected/m)
  t.match(await daemon.cli(['selftest', '--image', 'no.example/image:none']), { code: 65 })
})

void t.test('only addresses and names that nobody has are ever tried', (t) => {
  const commands = [...networkAttempts(), ...modelAttempts('key'), ...kernelAttempts()]
    .map(({ command }) =>
      command.replace(/\\([0-7]{3})/g, (_, code: string) =>
        String.fromCharCode(Number.parseInt(code, 8)),
      ),
    )
    .join('\n')
  for (const [address] of commands.matchAll(/\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b/g))
    t.match(address, /^(198\.51\.100\.|127\.0\.0\.1$|0306\.)/)
  for (const [name] of commands.matchAll(/\b[a-z0-9-]+\.(?:com|net|org|io|co|dev|ai)\b/g))
    t.fail(`a name that may exist: ${name}`)
  t.end()
})

const event = (reason: AuditEvent['reason']): AuditEvent => ({
  seq: 1,
  time: '2026-01-01T00:00:00.000Z',
  lease: 'a',
  trial: null,
  kind: 'decision',
  protocol: 'connect',
  host: 'x.example',
  address: null,
  port: 443,
  action: 'deny',
  reason,
  count: 1,
  bytesUp: 0,
  bytesDown: 0,
})

void t.test(
  'an attempt that surprises fails, and one that could not be made is said to be so',
  (t) => {
    const attempt: Attempt = {
      name: 'a',
      command: 'x',
      expected: '403',
      meets: ({ exit, output }) => exit === 0 && output === '403',
      audit: { reason: 'not_allowed_host', of: ({ host }) => host === 'x.example' },
    }
    const right = [event('not_allowed_host')]
    const rows: readonly (readonly [string, readonly AuditEvent[], Partial<AttemptResult>])[] = [
      ['\u00010 0 403\n\u0001', right, { seen: '403', audited: 'not_allowed_host', ok: true }],
      ['\u00010 0 200\n\u0001', right, { seen: 'exit 0: 200', ok: false }],
      ['\u00010 1 403\n\u0001', right, { seen: 'exit 1: 403', ok: false }],
      ['\u00010 0 403\n\u0001', [], { audited: 'missing', ok: false }],
      ['\u00010 0 403\n\u0001', [event('denied_host')], { audited: 'denied_host', ok: false }],
      ['\u00010 127 nc: applet not found\u0001', [], { ok: null }],
      ['', right, { seen: 'it did not end', ok: false }],
    ]
    for (const [output, events, expected] of rows)
      t.match(judgeAttempts([attempt], '0', output, events), [
        { attempt: 'a', user: '0', ...expected },
      ])
    t.match(judgeAttempts([{ ...attempt, audit: null }], '0', '\u00010 0 403\u0001', []), [
      { audited: '-', ok: true },
    ])
    t.match(attemptProgram([attempt]), /^b=\/\.closedbook\/busybox\n\( o=\$\( \{ x; \}/)
    t.end()
  },
)
