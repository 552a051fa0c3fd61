import t from 'tap'
import type { Exit } from '../../../daemon/protocol/exec-frames.ts'
import { faultBlame } from '../../../daemon/protocol/model-fault.ts'
import { classifyEnd, classifyScriptEnd, type EndFacts } from '../../../runner/harness/ends.ts'
import { harnessText, needsModel, parseHarness } from '../../../runner/harness/harness.ts'

const plain: EndFacts = {
  exitStatus: null,
  processExit: { code: 1 },
  file: 'whole',
  gatewayFault: null,
  budgetSpent: false,
  timedOut: false,
  killedByUs: null,
  oom: false,
}
const fault = (code: string) => ({ code, message: `${code} happened` })
const unreachable = { gatewayFault: fault('upstream_unreachable') }
const spent = { budgetSpent: true }

type Row = readonly [string, Partial<EndFacts>, string, string | null, boolean]
/** What happened; facts; reason code; blame; graded. */
const rows: readonly Row[] = [
  ['submitted', { exitStatus: 'Submitted', processExit: { code: 0 } }, 'submitted', null, true],
  [
    'submitted, and the budget was spent by the last call',
    { exitStatus: 'Submitted', ...spent },
    'submitted',
    null,
    true,
  ],
  [
    'step or cost limit ends with 0',
    { exitStatus: 'LimitsExceeded', processExit: { code: 0 } },
    'limit_reached',
    'agent',
    true,
  ],
  [
    'wall time ends with 0',
    { exitStatus: 'TimeExceeded', processExit: { code: 0 } },
    'wall_time',
    'agent',
    true,
  ],
  [
    'format errors end with 0',
    { exitStatus: 'RepeatedFormatError', processExit: { code: 0 } },
    'format_errors',
    'agent',
    true,
  ],
  ['context full', { exitStatus: 'ContextWindowExceededError' }, 'context_window', 'agent', true],
  [
    'budget spent, gateway says 401',
    { exitStatus: 'AuthenticationError', ...spent },
    'budget_spent',
    'agent',
    true,
  ],
  [
    'budget spent, seen as 404',
    { exitStatus: 'NotFoundError', ...spent },
    'budget_spent',
    'agent',
    true,
  ],
  [
    'gateway refused a request',
    { exitStatus: 'AuthenticationError' },
    'model_refused',
    'operator',
    false,
  ],
  [
    'key of the operator refused by the provider',
    { exitStatus: 'AuthenticationError', gatewayFault: fault('upstream_auth') },
    'upstream_auth',
    'operator',
    false,
  ],
  [
    'unknown model at the provider',
    { exitStatus: 'NotFoundError', gatewayFault: fault('upstream_rejected') },
    'upstream_rejected',
    'operator',
    false,
  ],
  [
    'recording too short',
    { exitStatus: 'AuthenticationError', gatewayFault: fault('replay_exhausted') },
    'replay_exhausted',
    'operator',
    false,
  ],
  [
    'recording of another conversation',
    { exitStatus: 'AuthenticationError', gatewayFault: fault('replay_mismatch') },
    'replay_mismatch',
    'operator',
    false,
  ],
  [
    'a name for 403 that mini never uses today',
    { exitStatus: 'PermissionDeniedError' },
    'model_refused',
    'operator',
    false,
  ],
  [
    '400 that is not about context',
    { exitStatus: 'BadRequestError' },
    'model_refused',
    'operator',
    false,
  ],
  ['403, 402, 413 as mini names them', { exitStatus: 'APIError' }, 'model_fault', 'infra', false],
  ['429 for too long', { exitStatus: 'RateLimitError' }, 'model_fault', 'infra', false],
  [
    'provider down',
    { exitStatus: 'InternalServerError', ...unreachable },
    'upstream_unreachable',
    'infra',
    false,
  ],
  ['502', { exitStatus: 'BadGatewayError' }, 'model_fault', 'infra', false],
  ['503', { exitStatus: 'ServiceUnavailableError' }, 'model_fault', 'infra', false],
  [
    'no answer in time',
    { exitStatus: 'Timeout', gatewayFault: fault('upstream_timeout') },
    'upstream_timeout',
    'infra',
    false,
  ],
  ['no choices in the answer', { exitStatus: 'IndexError' }, 'model_fault', 'infra', false],
  [
    'no connection, older clients',
    { exitStatus: 'APIConnectionError' },
    'model_fault',
    'infra',
    false,
  ],
  [
    'a fault of the gateway that this version does not know',
    { exitStatus: 'APIError', gatewayFault: fault('new_one') },
    'new_one',
    'infra',
    false,
  ],
  ['a price is missing', { exitStatus: 'RuntimeError' }, 'harness_settings', 'operator', false],
  ['a faulty template', { exitStatus: 'UndefinedError' }, 'harness_settings', 'operator', false],
  [
    'a setting of the wrong type',
    { exitStatus: 'TypeError' },
    'harness_settings',
    'operator',
    false,
  ],
  ['a streamed answer', { exitStatus: 'AttributeError' }, 'harness_settings', 'operator', false],
  ['mini asked a question', { exitStatus: 'EOFError' }, 'harness_prompted', 'infra', false],
  [
    'an exception nobody foresaw',
    { exitStatus: 'KeyError', exitMessage: "'x'\ntrace" },
    'harness_error',
    'infra',
    false,
  ],
  [
    'killed by somebody else',
    { exitStatus: '', processExit: { signal: 'SIGKILL' } },
    'harness_killed',
    'infra',
    false,
  ],
  [
    'killed, told by a shell',
    { exitStatus: '', processExit: { code: 143 } },
    'harness_killed',
    'infra',
    false,
  ],
  ['interrupted', { exitStatus: '', processExit: { code: 130 } }, 'harness_killed', 'infra', false],
  ['crashed in printing', { exitStatus: '' }, 'harness_crashed', 'infra', false],
  [
    'ended with 0 and no word',
    { exitStatus: '', processExit: { code: 0 } },
    'harness_crashed',
    'infra',
    false,
  ],
  ['torn in the middle of a write', { file: 'torn' }, 'harness_crashed', 'infra', false],
  ['never started: docker run failed', { file: 'absent' }, 'harness_not_started', 'infra', false],
  [
    'no first step since the provider was down',
    { file: 'absent', ...unreachable },
    'upstream_unreachable',
    'infra',
    false,
  ],
  [
    'exit unknown',
    { file: 'absent', processExit: 'unknown' },
    'harness_not_started',
    'infra',
    false,
  ],
  [
    'our hard limit',
    { exitStatus: '', timedOut: true, processExit: { signal: 'SIGKILL' } },
    'wall_time',
    'agent',
    true,
  ],
  [
    'our hard limit, before the first step',
    { file: 'absent', timedOut: true },
    'wall_time',
    'agent',
    true,
  ],
  [
    'our hard limit while the provider was down',
    { timedOut: true, ...unreachable },
    'upstream_unreachable',
    'infra',
    false,
  ],
  [
    'wall time while the provider was down',
    { exitStatus: 'TimeExceeded', ...unreachable },
    'upstream_unreachable',
    'infra',
    false,
  ],
  [
    'an old fault before a good answer counts no more',
    { exitStatus: 'LimitsExceeded', ...spent },
    'limit_reached',
    'agent',
    true,
  ],
  [
    'cancelled',
    { exitStatus: '', killedByUs: 'cancelled', timedOut: true },
    'cancelled',
    'operator',
    false,
  ],
  [
    'the runner stops',
    { exitStatus: 'Submitted', killedByUs: 'shutdown' },
    'runner_shutdown',
    'infra',
    false,
  ],
  [
    'harness out of memory',
    { exitStatus: '', oom: true, processExit: { signal: 'SIGKILL' } },
    'harness_out_of_memory',
    'infra',
    false,
  ],
  [
    'the container is gone and mini went on to its limit',
    { exitStatus: 'LimitsExceeded', taskGone: { oom: false } },
    'sandbox_gone',
    'infra',
    false,
  ],
  [
    'the agent used up the memory of its sandbox',
    { exitStatus: 'LimitsExceeded', taskGone: { oom: true } },
    'sandbox_out_of_memory',
    'agent',
    false,
  ],
]

void t.test('every end has one cause, one to blame, and is graded or not', (t) => {
  for (const [what, facts, code, blame, gradable] of rows) {
    const end = classifyEnd({ ...plain, ...facts })
    t.match(end, { reason: { code }, blame, gradable }, what)
    t.ok(end.reason.message.length > 5, what)
    t.notOk(end.reason.message.includes('\n'), `${what}: one line`)
  }
  t.end()
})

void t.test('whoever is to blame for a fault of the gateway is so here', (t) => {
  for (const [code, blame] of Object.entries(faultBlame))
    t.match(classifyEnd({ ...plain, exitStatus: 'APIError', gatewayFault: fault(code) }), {
      blame,
      reason: { code },
      gradable: false,
    })
  t.end()
})

void t.test(
  'no combination of facts is left without an end, and only an agent or nobody is graded',
  (t) => {
    const statuses = [
      null,
      '',
      'Submitted',
      'LimitsExceeded',
      'TimeExceeded',
      'AuthenticationError',
      'APIError',
      'Unheard',
    ]
    const exits: readonly Exit[] = [{ code: 0 }, { code: 1 }, { signal: 'SIGTERM' }, 'unknown']
    const both = [false, true]
    let seen = 0
    for (const exitStatus of statuses)
      for (const processExit of exits)
        for (const file of ['whole', 'torn', 'absent'] as const)
          for (const budgetSpent of both)
            for (const timedOut of both)
              for (const oom of both)
                for (const gatewayFault of [null, fault('upstream_busy')])
                  for (const taskGone of [null, { oom: false }, { oom: true }]) {
                    const end = classifyEnd({
                      ...plain,
                      exitStatus,
                      processExit,
                      file,
                      budgetSpent,
                      timedOut,
                      oom,
                      gatewayFault,
                      taskGone,
                    })
                    if (end.gradable && end.blame !== null && end.blame !== 'agent')
                      t.fail(JSON.stringify(end))
                    if (end.kind === 'done' && exitStatus !== 'Submitted')
                      t.fail(JSON.stringify(end))
                    seen++
                  }
    t.equal(seen, 8 * 4 * 3 * 2 * 2 * 2 * 2 * 3)
    t.end()
  },
)

void t.test('a script is graded whatever its status', (t) => {
  const base = {
    processExit: { code: 0 },
    timedOut: false,
    killedByUs: null,
    taskGone: null,
  } as const
  t.match(classifyScriptEnd(base), { kind: 'done', blame: null, gradable: true })
  t.match(classifyScriptEnd({ ...base, processExit: { code: 3 } }), {
    blame: 'agent',
    reason: { code: 'script_failed', message: /exit 3/ },
    gradable: true,
  })
  t.match(classifyScriptEnd({ ...base, processExit: { signal: 'SIGSEGV' } }), {
    reason: { message: /SIGSEGV/ },
  })
  t.match(classifyScriptEnd({ ...base, processExit: 'unknown' }), {
    blame: 'infra',
    gradable: false,
  })
  t.match(classifyScriptEnd({ ...base, processExit: { signal: 'SIGKILL' }, timedOut: true }), {
    reason: { code: 'wall_time' },
    gradable: true,
  })
  t.match(classifyScriptEnd({ ...base, taskGone: { oom: true } }), {
    blame: 'agent',
    gradable: false,
  })
  t.match(classifyScriptEnd({ ...base, killedByUs: 'cancelled' }), {
    blame: 'operator',
    gradable: false,
  })
  t.end()
})

void t.test('a harness is one word, or script and a file', (t) => {
  t.strictSame(parseHarness('script:a:b.sh', '/base'), { kind: 'script', file: '/base/a:b.sh' })
  t.strictSame(parseHarness('script:/x.sh', '/base'), { kind: 'script', file: '/x.sh' })
  for (const text of ['mini-swe-agent', 'noop', 'oracle', 'script:/x.sh'])
    t.equal(harnessText(parseHarness(text, '/')), text)
  t.strictSame(
    ['mini-swe-agent', 'noop', 'oracle', 'script:/x'].map((text) =>
      needsModel(parseHarness(text, '/')),
    ),
    [true, false, false, false],
  )
  t.end()
})
