import t from 'tap'
import { StepLog, stepLine, stepSchema, type Step } from '../../runner/step-log.ts'
import { renderStep } from '../../runner/report/render-step.ts'
import type { LeaseEvent } from '../../daemon/protocol/lease.ts'
import { Random } from './support/random.ts'

type Event = Pick<LeaseEvent, 'time' | 'event'>
const at = (second: number): string => new Date(Date.UTC(2025, 0, 1, 0, 0, second)).toISOString()

const call = (second: number, n: number, commands: readonly string[], status = 200): Event => ({
  time: at(second),
  event: {
    type: 'model.call',
    n,
    status,
    inputTokens: 100,
    cachedInputTokens: 10,
    outputTokens: 5,
    reasoningTokens: 1,
    costUsd: 0.25,
    latencyMs: 9,
    text: `thought ${n}`,
    commands: [...commands],
  },
})
const start = (
  second: number,
  exec: string,
  command: string,
  label: string | null = null,
): Event => ({
  time: at(second),
  event: { type: 'exec.start', exec, argv: ['bash', '-lc', command], label },
})
const end = (
  second: number,
  exec: string,
  output = 'out\n',
  exit: unknown = { code: 0 },
): Event => ({
  time: at(second),
  event: {
    type: 'exec.end',
    exec,
    exit,
    cause: 'exited',
    durationMs: 12,
    outputBytes: output.length,
    head: output,
    tail: output,
  },
})
const denied = (second: number, target: string): Event => ({
  time: at(second),
  event: { type: 'egress.denied', seq: second, protocol: 'tcp', target, reason: 'direct_tcp' },
})

function fold(events: readonly Event[]): { log: StepLog; given: Step[] } {
  const log = new StepLog()
  const given = events.flatMap((event) => [...log.add(event)])
  return { log, given: [...given, ...log.end()] }
}

const session: readonly Event[] = [
  call(1, 0, ['ls']),
  start(2, 'e1', 'ls'),
  end(3, 'e1'),
  call(4, 1, ['a', 'b']),
  start(5, 'e2', 'a'),
  end(6, 'e2'),
  denied(7, '198.51.100.7:443'),
  denied(7, '198.51.100.7:443'),
  start(8, 'e3', 'b'),
  end(9, 'e3', 'err', { code: 2 }),
  call(10, 2, ['submit']),
  start(11, 'e4', 'submit'),
  end(12, 'e4'),
]

void t.test('a step is a model call with its commands, tokens, cost and what was refused', (t) => {
  const { given } = fold(session)
  t.match(given, [
    {
      step: 1,
      text: 'thought 0',
      costUsd: 0.25,
      commands: [{ command: 'ls', exit: { code: 0 }, outputBytes: 4 }],
      denied: { length: 0 },
    },
    {
      step: 2,
      tokens: { input: 100, cachedInput: 10, output: 5, reasoning: 1 },
      commands: [{ command: 'a' }, { command: 'b', exit: { code: 2 } }],
      denied: [{ target: '198.51.100.7:443', reason: 'direct_tcp', count: 2 }],
    },
    { step: 3, commands: [{ command: 'submit' }] },
  ])
  for (const step of given) t.ok(stepSchema.parse(JSON.parse(stepLine(step))))
  t.end()
})

void t.test('a step is handed out once, in order, and not before it is complete', (t) => {
  const log = new StepLog()
  const counts = session.map((event) => log.add(event).map((step) => step.step))
  t.strictSame(counts.flat(), [1, 2])
  t.strictSame(counts[3], [1], 'the next call completes the first step')
  t.strictSame(
    log.end().map((step) => step.step),
    [3],
  )
  t.strictSame(log.end(), [])
  t.end()
})

void t.test('two streams that run apart give the same steps', (t) => {
  const expected = fold(session).given
  const calls = session.filter(({ event }) => event.type === 'model.call')
  const execs = session.filter(({ event }) => event.type.startsWith('exec'))
  const commandsOf = (steps: readonly Step[]) =>
    steps.map((step) => step.commands.map(({ command, exit }) => ({ command, exit })))
  const random = new Random(21)
  for (let round = 0; round < 200; round++) {
    // The harness's stream may be ahead by one call at most: the next call follows the command's end.
    const [a, b] = [[...calls], [...execs]]
    const mixed: Event[] = []
    while (a.length + b.length > 0) {
      const callsSeen = calls.length - a.length
      const execsEnded = mixed.filter(({ event }) => event.type === 'exec.end').length
      const mayCall = a.length > 0 && (b.length === 0 || execsEnded >= Math.max(0, callsSeen - 1))
      const mayExec = b.length > 0 && callsSeen > 0
      const next = mayCall && (!mayExec || random.next() < 0.5) ? a.shift() : b.shift()
      if (next !== undefined) mixed.push(next)
    }
    t.strictSame(commandsOf(fold(mixed).given), commandsOf(expected))
  }
  t.end()
})

void t.test('without a model each command is a step', (t) => {
  const { given } = fold([
    start(1, 'e1', 'a'),
    denied(2, 'x.example'),
    end(3, 'e1'),
    start(4, 'e2', 'b'),
    end(5, 'e2'),
  ])
  t.match(given, [
    {
      step: 1,
      text: null,
      tokens: null,
      commands: [{ command: 'a' }],
      denied: [{ target: 'x.example' }],
    },
    { step: 2, commands: [{ command: 'b' }] },
  ])
  t.end()
})

void t.test("refused calls and the runner's own commands are no steps", (t) => {
  const { given } = fold([
    call(1, 0, [], 401),
    start(2, 'e1', 'git diff', 'closedbook:collect'),
    end(3, 'e1'),
    call(4, 1, ['ls']),
    start(5, 'e2', 'ls', '1'),
    end(6, 'e2'),
  ])
  t.match(given, [{ step: 1, commands: [{ command: 'ls' }] }])
  t.equal(given.length, 1)
  t.end()
})

void t.test('what is still running at the end is told as running', (t) => {
  const { given } = fold([call(1, 0, ['sleep 9']), start(2, 'e1', 'sleep 9')])
  t.match(given, [{ commands: [{ exit: null, durationMs: null }] }])
  t.match(renderStep(given[0] as Step, { color: false }), /= running/)
  t.end()
})

void t.test('an argv that is no shell line is shown so that it can be typed', (t) => {
  const { given } = fold([
    {
      time: at(1),
      event: { type: 'exec.start', exec: 'e', argv: ['echo', "it's", 'a b', '-x'], label: null },
    },
  ])
  t.equal(given[0]?.commands[0]?.command, `echo 'it'\\''s' 'a b' -x`)
  t.end()
})

void t.test('a step is readable, without colour when piped', (t) => {
  const { given } = fold(session)
  t.equal(
    renderStep(given[1] as Step, { color: false }),
    `step 2  00:00:04 · 100 in, 5 out · $0.2500
  thought 1
  $ a
    out
  = exit 0, 12 ms
  $ b
    err
  = exit 2, 12 ms
  ! blocked tcp to 198.51.100.7:443: direct_tcp (2 times)
`,
  )
  t.ok(renderStep(given[1] as Step, { color: true }).includes('\u001b[31m  = exit 2'))
  t.end()
})

void t.test('long output is shown by its end, with the size told', (t) => {
  const output = Array.from({ length: 500 }, (_, n) => `line ${n}`).join('\n')
  const { given } = fold([call(1, 0, ['x']), start(2, 'e', 'x'), end(3, 'e', output)])
  const text = renderStep(given[0] as Step, { color: false, outputLines: 3 })
  t.match(text, /… the end of 4,389 bytes\n {4}line 497\n {4}line 498\n {4}line 499\n/)
  t.end()
})

void t.test('nothing that an agent wrote reaches the terminal as a control sequence', (t) => {
  const hostile = 'a\u001b]0;title\u0007\u001b[2J\r\u009b31m\u202egnp.exe\u2066\u0000\ud800b'
  const events: Event[] = [
    {
      ...call(1, 0, ['x']),
      event: { ...call(1, 0, ['x']).event, text: hostile } as Event['event'],
    },
    start(2, 'e', hostile),
    end(3, 'e', hostile, { signal: hostile }),
    denied(4, hostile),
  ]
  const random = new Random(31)
  for (let round = 0; round < 50; round++)
    events.push(start(5 + round, `r${round}`, random.text(200)))
  for (const step of fold(events).given) {
    const text = renderStep(step, { color: false })
    t.notMatch(
      text,
      // oxlint-disable-next-line no-control-regex
      /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/,
    )
    t.ok(text.isWellFormed())
  }
  t.match(
    renderStep(fold(events).given[0] as Step, { color: false }),
    /a\\x1b\]0;title\\x07\\x1b\[2J\\x0d\\x9b31m\\u202egnp\.exe/,
  )
  t.end()
})
