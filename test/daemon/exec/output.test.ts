import t from 'tap'
import { Demuxer } from '../../../daemon/exec/demux.ts'
import type { OutputStream } from '../../../daemon/exec/demux.ts'
import { exitOfCode } from '../../../daemon/exec/exit.ts'
import { OutputCap } from '../../../daemon/exec/output-cap.ts'
import { OutputGate } from '../../../daemon/exec/output-gate.ts'

function frame(type: number, text: string): Buffer {
  const header = Buffer.alloc(8)
  header.writeUInt8(type, 0)
  header.writeUInt32BE(Buffer.byteLength(text), 4)
  return Buffer.concat([header, Buffer.from(text)])
}

const frames = Buffer.concat([
  frame(1, 'one'),
  frame(2, 'two'),
  frame(1, ''),
  frame(1, 'three'),
  frame(3, 'the engine failed'),
])

function demux(chunks: readonly Buffer[]): Record<string, string> {
  const demuxer = new Demuxer()
  const seen: Record<string, string> = {}
  for (const chunk of chunks)
    for (const { stream, bytes } of demuxer.push(chunk))
      seen[stream] = (seen[stream] ?? '') + bytes.toString()
  return seen
}

t.test('the multiplexed stream is the same however it is cut', async (t) => {
  const whole = { stdout: 'onethree', stderr: 'two', engine: 'the engine failed' }
  for (let at = 0; at <= frames.length; at += 1)
    t.strictSame(demux([frames.subarray(0, at), frames.subarray(at)]), whole)
  t.strictSame(demux([...frames].map((byte) => Buffer.from([byte]))), whole, 'byte by byte')
})

t.test('a hundred thousand frames in one chunk are no deeper than one', async (t) => {
  const many = Buffer.concat(Array.from({ length: 100_000 }, () => frame(1, 'x')))
  t.equal(demux([many])['stdout']?.length, 100_000)
})

t.test('a stream that is out of step is an error, not output', async (t) => {
  t.throws(() => demux([Buffer.from('OCI runtime')]), { code: 'engine_refused' })
})

interface Sent {
  stream: OutputStream
  offset: number
  text: string
}

function capped(limit: number | undefined, pushes: readonly [OutputStream, string][]) {
  const cap = new OutputCap(limit)
  const live: Sent[] = []
  for (const [stream, text] of pushes) {
    const now = cap.push(stream, Buffer.from(text))
    if (now !== null) live.push({ ...now, text: now.bytes.toString() })
  }
  const late = cap.finish().map((each) => ({ ...each, text: each.bytes.toString() }))
  const plain = ({ stream, offset, text }: Sent): Sent => ({ stream, offset, text })
  return {
    live: live.map(plain),
    late: late.map(plain),
    stdout: cap.totals('stdout'),
    stderr: cap.totals('stderr'),
  }
}

t.test('under the limit everything goes out at once', async (t) => {
  t.strictSame(capped(10, [['stdout', '12345']]), {
    live: [{ stream: 'stdout', offset: 0, text: '12345' }],
    late: [],
    stdout: { totalBytes: 5, droppedBytes: 0 },
    stderr: { totalBytes: 0, droppedBytes: 0 },
  })
  t.equal(capped(undefined, [['stdout', 'x'.repeat(1e6)]]).live[0]?.text.length, 1e6)
})

t.test('exactly at the limit nothing is dropped', async (t) => {
  const seen = capped(10, [['stdout', '1234567890']])
  t.equal([...seen.live, ...seen.late].map(({ text }) => text).join(''), '1234567890')
  t.equal(seen.stdout.droppedBytes, 0)
})

t.test('over the limit the first and the last half stay, at their true offsets', async (t) => {
  const seen = capped(10, [
    ['stdout', 'abc'],
    ['stdout', 'defghijk'],
    ['stdout', 'lmnopqrstuvwxyz'],
  ])
  t.strictSame(seen, {
    live: [
      { stream: 'stdout', offset: 0, text: 'abc' },
      { stream: 'stdout', offset: 3, text: 'de' },
    ],
    late: [{ stream: 'stdout', offset: 21, text: 'vwxyz' }],
    stdout: { totalBytes: 26, droppedBytes: 16 },
    stderr: { totalBytes: 0, droppedBytes: 0 },
  })
})

t.test('two streams share the last half, and what one does not need the other gets', async (t) => {
  const flood = 'x'.repeat(50)
  const both = capped(20, [
    ['stdout', flood],
    ['stderr', flood],
  ])
  t.strictSame(
    both.late.map(({ stream, offset, text }) => [stream, offset, text.length]),
    [
      ['stdout', 45, 5],
      ['stderr', 45, 5],
    ],
  )
  const uneven = capped(20, [
    ['stdout', flood],
    ['stderr', 'err'],
  ])
  t.strictSame(
    uneven.late.map(({ stream, offset, text }) => [stream, offset, text.length]),
    [
      ['stdout', 43, 7],
      ['stderr', 0, 3],
    ],
  )
  t.strictSame(uneven.stderr, { totalBytes: 3, droppedBytes: 0 })
})

t.test('the kept tail is right for every size of push and limit', async (t) => {
  const text = Array.from({ length: 2000 }, (_, at) => String.fromCharCode(97 + (at % 26))).join('')
  for (const limit of [1, 2, 3, 64, 999, 1999, 2000, 4000])
    for (const step of [1, 7, 500, 2000]) {
      const pushes: [OutputStream, string][] = []
      for (let at = 0; at < text.length; at += step)
        pushes.push(['stdout', text.slice(at, at + step)])
      const { live, late, stdout } = capped(limit, pushes)
      const sent = [...live, ...late]
      const label = `limit ${limit}, pushes of ${step}`
      t.ok(
        sent.every((each) => text.startsWith(each.text, each.offset)),
        label,
      )
      const bytes = sent.reduce((sum, each) => sum + each.text.length, 0)
      t.equal(bytes, Math.min(limit, text.length), label)
      t.strictSame(stdout, { totalBytes: 2000, droppedBytes: 2000 - bytes }, label)
    }
})

t.test(
  'a first line that looks like the engine speaking is held back, but never for long',
  async (t) => {
    const seen: string[] = []
    const arrived = Promise.withResolvers<void>()
    const gate = new OutputGate(new OutputCap(undefined), (_stream, offset, bytes) => {
      seen.push(`${offset}:${bytes.toString()}`)
      arrived.resolve()
    })
    await gate.take('stdout', Buffer.from('ready\r\n'))
    t.strictSame(seen, [], 'held')
    await arrived.promise
    await gate.take('stdout', Buffer.from('next'))
    await gate.finish()
    t.strictSame(seen, ['0:ready\r\n', '7:next'])

    const other: string[] = []
    const order = new OutputGate(new OutputCap(undefined), (stream, _offset, bytes) => {
      other.push(`${stream}:${bytes.toString()}`)
    })
    await order.take('stderr', Buffer.from('first\r\n'))
    await order.take('stdout', Buffer.from('second'))
    t.strictSame(other, ['stderr:first\r\n', 'stdout:second'], 'released by what follows')

    const withheld: string[] = []
    const refused = new OutputGate(new OutputCap(undefined), (_stream, _offset, bytes) => {
      withheld.push(bytes.toString())
    })
    await refused.take('stdout', Buffer.from('no such file\r\n'))
    t.equal(refused.withheld(), 'no such file')
    await refused.finish()
    t.strictSame(withheld, [], 'the engine’s words are no output')
  },
)

t.test('an exit is a code, a signal, or unknown', async (t) => {
  for (const [code, exit, why] of [
    [0, { code: 0 }, 'success'],
    [1, { code: 1 }, 'failure'],
    [127, { code: 127 }, 'a shell that found no command'],
    [128, { code: 128 }, 'no signal has number 0'],
    [130, { signal: 'SIGINT' }, ''],
    [137, { signal: 'SIGKILL' }, ''],
    [143, { signal: 'SIGTERM' }, ''],
    [159, { signal: 'SIGSYS' }, 'the kernel’s filter'],
    [200, { code: 200 }, 'no signal has number 72'],
    [255, { code: 255 }, ''],
    [null, 'unknown', 'nobody saw it end'],
  ] as const)
    t.strictSame(exitOfCode(code), exit, `${code} ${why}`)
})
