/** The rules of PTY sessions by themselves: ring, flow, control, sizes, the start mark, frames, recordings. */
import t from 'tap'
import { ByteRing } from '../../../daemon/pty/byte-ring.ts'
import { ControlRule, type Controller } from '../../../daemon/pty/control-rule.ts'
import { behindLimitBytes, delayMs, nextStep, socketWindowBytes } from '../../../daemon/pty/flow.ts'
import { Resizer, type Size } from '../../../daemon/pty/resizer.ts'
import { StartMark } from '../../../daemon/pty/start-wrapper.ts'
import { castLine, parseCast } from '../../../daemon/protocol/pty-cast.ts'
import {
  decodeMessage,
  encodeAck,
  encodeControl,
  encodeInput,
  encodeInputAck,
  encodeOutput,
  encodeSnapshot,
  outputWindowBytes,
} from '../../../daemon/protocol/pty-frames.ts'
import { TerminalFilter } from '../../../daemon/protocol/pty-filter.ts'
import { clampSize, ptyOpenSchema } from '../../../daemon/protocol/pty.ts'
import { Random } from '../../runner/support/random.ts'

t.test('the ring holds the last bytes by absolute offset', (t) => {
  const random = new Random(7)
  const next = (): number => random.next()
  const ring = new ByteRing(100_000)
  let all = Buffer.alloc(0)
  while (all.length < 1_000_000) {
    const bytes = Buffer.from(
      Array.from({ length: Math.floor(next() * 9_000) }, () => next() * 256),
    )
    ring.push(bytes)
    all = Buffer.concat([all, bytes])
    if (ring.end - ring.start < Math.min(100_000, all.length)) t.fail('less is there than must be')
    if (ring.end - ring.start > 100_000 + 2 * 64 * 1024) t.fail('more is there than may be')
    const from = ring.start + Math.floor(next() * (ring.end - ring.start))
    const length = Math.floor(next() * 70_000)
    if (!ring.read(from, length).equals(all.subarray(from, from + length)))
      t.fail(`wrong bytes at ${from}`)
  }
  t.equal(ring.end, all.length)
  t.equal(ring.read(ring.end, 10).length, 0)
  t.throws(() => ring.read(ring.start - 1, 1), RangeError)
  t.throws(() => ring.read(ring.end + 1, 1), RangeError)
  ring.push(Buffer.from('half a line\nwhole'))
  t.equal(ring.lineStartFrom(ring.end - 17), ring.end - 5)
  t.end()
})

t.test('what a viewer gets next', (t) => {
  const at = { sent: 0, acked: 0, queued: 0, lossless: false, lost: false }
  const MiB = 1024 * 1024
  const log = { start: 0, end: 10 }
  const table: [why: string, place: object, log: object, step: object][] = [
    ['a little is sent', at, log, { do: 'send', bytes: 10 }],
    ['nothing new', { ...at, sent: 10, acked: 10 }, log, { do: 'wait' }],
    ['much is sent in pieces', at, { start: 0, end: 500_000 }, { do: 'send', bytes: 65_536 }],
    ['its socket takes no more', { ...at, queued: socketWindowBytes }, log, { do: 'wait' }],
    [
      'it has not taken what is under way',
      { ...at, sent: MiB },
      { start: 0, end: MiB + 5 },
      { do: 'wait' },
    ],
    [
      'the window is almost full',
      { ...at, sent: outputWindowBytes - 3 },
      { start: 0, end: MiB + 5 },
      { do: 'send', bytes: 3 },
    ],
    ['too far behind', at, { start: 0, end: behindLimitBytes + 1 }, { do: 'lose' }],
    [
      'lossless keeps its place',
      { ...at, lossless: true },
      { start: 0, end: behindLimitBytes + 1 },
      { do: 'send', bytes: 65_536 },
    ],
    ['what it waits for is gone', { ...at, lossless: true }, { start: 5, end: 10 }, { do: 'lose' }],
    ['lost, and has not taken the rest', { ...at, sent: 9, lost: true }, log, { do: 'wait' }],
    [
      'lost, and its socket is full',
      { ...at, sent: 9, acked: 9, queued: 1, lost: true },
      log,
      { do: 'wait' },
    ],
    ['lost, and idle', { ...at, sent: 9, acked: 9, lost: true }, log, { do: 'snapshot' }],
  ]
  for (const [why, place, of, step] of table)
    t.strictSame(nextStep({ ...at, ...place }, { ...log, ...of }), step, why)
  t.equal(delayMs(1, 100), 0, 'the first key after a pause is echoed at once')
  t.ok(delayMs(1, 1) > 0 && delayMs(1, 1) <= 8, 'what follows is gathered')
  t.equal(delayMs(65_536, 1), 0, 'but not when there is much')
  t.end()
})

t.test('control is free for the asking, granted by its holder, and never lost with one', (t) => {
  const heard: string[] = []
  const one = (name: string): Controller => ({
    granted: () => void heard.push(`${name} granted`),
    waiting: () => void heard.push(`${name} waiting`),
    requested: () => void heard.push(`${name} requested`),
    lost: () => void heard.push(`${name} lost`),
  })
  const rule = new ControlRule<Controller>()
  const [a, b, c] = [one('a'), one('b'), one('c')]
  rule.request(a)
  rule.request(a)
  rule.request(b)
  rule.request(c)
  t.notOk(rule.grant(b), 'only the holder grants')
  t.ok(rule.grant(a))
  rule.release(b)
  rule.release(c)
  t.equal(rule.holder, null)
  rule.request(a)
  t.notOk(rule.grant(a), 'to nobody')
  t.strictSame(heard, [
    ...['a granted', 'b waiting', 'a requested', 'c waiting', 'a requested'],
    ...['a lost', 'b granted'],
    ...['c granted', 'a granted'],
  ])
  t.end()
})

t.test('sizes go to the engine one at a time, and the newest wins', async (t) => {
  const asked: Size[] = []
  const told: Size[] = []
  let gate = Promise.withResolvers<void>()
  const resizer = new Resizer(
    { cols: 120, rows: 40 },
    async (size) => {
      asked.push(size)
      await gate.promise
    },
    (size) => told.push(size),
  )
  for (let cols = 10; cols <= 99; cols += 1) resizer.want({ cols, rows: 20 })
  t.equal(asked.length, 1)
  gate.resolve()
  while (told.length < 2) await new Promise((resolve) => setImmediate(resolve))
  t.strictSame(asked, [
    { cols: 10, rows: 20 },
    { cols: 99, rows: 20 },
  ])
  t.strictSame(resizer.size, { cols: 99, rows: 20 })
  gate = Promise.withResolvers()
  resizer.want({ cols: 0, rows: 1e9 })
  t.strictSame(asked.at(-1), { cols: 2, rows: 1000 }, 'clamped')
  gate.reject(new Error('the program has ended'))
  await new Promise((resolve) => setImmediate(resolve))
  t.strictSame(resizer.size, { cols: 99, rows: 20 }, 'what could not be done changes nothing')
  t.strictSame([0, -1, 2.9, Number.NaN, 65_536].map(clampSize), [2, 2, 2, 2, 1000])
  t.match(ptyOpenSchema.parse({ argv: ['x'], role: 'agent' }), { cols: 120, rows: 40 })
})

t.test(
  'the start mark is taken out wherever it is cut, and what comes instead of it are words',
  (t) => {
    const whole = Buffer.from('\u001B_abc\u001B\\\u001B_abc\u001B\\out')
    for (let cut = 0; cut <= whole.length; cut += 1) {
      const mark = new StartMark('abc')
      const out = Buffer.concat([mark.push(whole.subarray(0, cut)), mark.push(whole.subarray(cut))])
      t.equal(out.toString(), '\u001B_abc\u001B\\out', `cut at ${cut}`)
    }
    const mark = new StartMark('abc')
    t.equal(mark.push(Buffer.from('OCI runtime exec failed\r\n')).length, 0)
    t.notOk(mark.seen)
    t.equal(mark.words, 'OCI runtime exec failed')
    t.end()
  },
)

t.test('every message reads as it was written, and rubbish is a RangeError', (t) => {
  const bytes = new Uint8Array([0, 255, 27])
  const facts = { offset: 2 ** 40 + 1, cols: 120, rows: 40, approximate: true }
  t.strictSame(decodeMessage(encodeOutput(2 ** 52, bytes)), {
    type: 'output',
    offset: 2 ** 52,
    bytes,
  })
  t.strictSame(decodeMessage(encodeSnapshot(facts, bytes)), { type: 'snapshot', ...facts, bytes })
  t.strictSame(decodeMessage(encodeInput(2 ** 32 - 1, bytes)), {
    type: 'input',
    n: 2 ** 32 - 1,
    bytes,
  })
  t.strictSame(decodeMessage(encodeAck(77)), { type: 'ack', offset: 77 })
  t.strictSame(decodeMessage(encodeInputAck(78)), { type: 'inputAck', n: 78 })
  t.strictSame(decodeMessage(encodeControl({ type: 'x€' })), {
    type: 'control',
    value: { type: 'x€' },
  })
  const random = new Random(11)
  const next = (): number => random.next()
  for (let round = 0; round < 5_000; round += 1) {
    const junk = Uint8Array.from({ length: Math.floor(next() * 24) }, () =>
      Math.floor(next() * 256),
    )
    try {
      decodeMessage(junk)
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
    }
  }
  t.throws(() => decodeMessage(Uint8Array.from([1, ...new Uint8Array(8).fill(255)])), RangeError)
  t.end()
})

t.test('a recording whose last line was torn by a crash is read without it', (t) => {
  const head = '{"version":2,"width":120,"height":40}\n'
  const lines =
    castLine(0.5, 'o', 'a\u001B"\n') + castLine(1, 'm', 'step 1') + castLine(2, 'x', '0')
  for (let cut = 0; cut < castLine(2, 'x', '0').length; cut += 1) {
    const text = (head + lines).slice(0, head.length + lines.length - cut)
    const { events, torn } = parseCast(text)
    t.equal(events.length, cut <= 1 ? 3 : 2, `${cut} bytes short`)
    t.equal(torn, cut > 1 && !text.endsWith('\n'))
  }
  t.throws(() => parseCast('nothing\n'), /line 1/)
  t.throws(() => parseCast(`${head}[1, "o"]\n${castLine(2, 'x', '0')}`), /line 2/)
  t.end()
})

t.test('what a hostile program prints does nothing to the terminal of one who looks on', (t) => {
  const ESC = '\u001B'
  const table: [why: string, sent: string, passed: string][] = [
    [
      'text, colours, cursor, modes',
      `${ESC}[1;31mred${ESC}[0m${ESC}[5;9H${ESC}[2J${ESC}[?25l${ESC}(0q${ESC}(B`,
      'same',
    ],
    ['alternate screen, mouse, paste', `${ESC}[?1049h${ESC}[?1006h${ESC}[?2004h`, 'same'],
    ['bytes beyond ASCII', 'é€🙂', 'same'],
    ['device attributes', `a${ESC}[c${ESC}[>c${ESC}[=0c${ESC}Zb`, 'ab'],
    ['reports', `a${ESC}[5n${ESC}[6n${ESC}[?6n${ESC}[?996nb`, 'ab'],
    [
      'modes, settings, version, keyboard',
      `a${ESC}[?2026$p${ESC}[4$p${ESC}[>q${ESC}[?u${ESC}[?4mb`,
      'ab',
    ],
    ['soft reset is none of them', `a${ESC}[!pb`, 'same'],
    ['window operations', `a${ESC}[21t${ESC}[8;1;1t${ESC}[3;0;0tb`, 'ab'],
    ['clipboard', `a${ESC}]52;c;cm0gLXJm\u0007${ESC}]52;c;?${ESC}\\b`, 'ab'],
    [
      'title, directory, notifications, palette',
      `a${ESC}]0;t\u0007${ESC}]7;file:///\u0007${ESC}]9;x\u0007${ESC}]4;1;?\u0007${ESC}]11;?${ESC}\\${ESC}]1337;x\u0007b`,
      'ab',
    ],
    [
      'strings of devices',
      `a${ESC}P$q"p${ESC}\\${ESC}_x${ESC}\\${ESC}^x${ESC}\\${ESC}Xx${ESC}\\b`,
      'ab',
    ],
    ['a link to the web', `${ESC}]8;;https://example.org/x${ESC}\\text${ESC}]8;;${ESC}\\`, 'same'],
    [
      'another link',
      `${ESC}]8;;file:///etc/passwd${ESC}\\text${ESC}]8;;javascript:x\u0007`,
      'text',
    ],
    ['answer back, and other controls', 'a\u0005\u000e\u000f\u007fb', 'ab'],
    ['C1 in UTF-8', 'a\u009b6nb\u009d52;c;x\u009cc', 'a6nb52;c;xc'],
    ['a string in a string', `a${ESC}]0;${ESC}[31mb`, `a${ESC}[31mb`],
    ['cancelled', `a${ESC}[3\u0018b${ESC}]0;x\u001ac`, 'abc'],
    ['printing and rectangles', `a${ESC}[5i${ESC}[1;1;2;2;1*yb`, 'ab'],
  ]
  for (const [why, sent, passed] of table) {
    const bytes = Buffer.from(sent)
    const wanted = passed === 'same' ? sent : passed
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const filter = new TerminalFilter()
      const out = [filter.push(bytes.subarray(0, cut)), filter.push(bytes.subarray(cut))]
      const got = Buffer.concat(out).toString()
      if (got !== wanted) t.equal(got, wanted, `${why}, cut at ${cut}`)
    }
    t.pass(why)
  }
  const endless = new TerminalFilter()
  let passed = endless.push(Buffer.from(`${ESC}]0;`)).length
  for (let piece = 0; piece < 100; piece += 1)
    passed += endless.push(Buffer.alloc(65_536, 'x')).length
  t.equal(passed, 0, 'a string without end is not kept')
  t.equal(Buffer.from(endless.push(Buffer.from('\u0007ok'))).toString(), 'ok')
  const plain = new TerminalFilter({ plain: true })
  t.equal(
    Buffer.from(
      plain.push(Buffer.from(`a${ESC}[31m\tb\r\n${ESC}]8;;https://x${ESC}\\c`)),
    ).toString(),
    'a\tb\nc',
  )
  const modes = new TerminalFilter()
  modes.push(
    Buffer.from(`${ESC}[?1049h${ESC}[?1000;1006h${ESC}[?25l${ESC}[?2004h${ESC}[?2004l${ESC}[>1u`),
  )
  const restored = modes.restore()
  for (const part of ['[?1049l', '[?1000l', '[?1006l', '[?25h', '[<u', '[0m'])
    t.ok(restored.includes(part), part)
  t.notOk(restored.includes('2004'))
  t.end()
})
