/** The keys that leave a session or pass its control on, and recordings in other forms. */
import t from 'tap'
import { parseCast } from '../../../daemon/protocol/pty-cast.ts'
import {
  areApart,
  controlKeysBeside,
  keysForPeople,
  parseDetachKeys,
  WatchedKeys,
} from '../../../runner/pty/detach-keys.ts'
import { play, toRaw, toText, toV3 } from '../../../runner/pty/play.ts'

t.test('which keys may leave', (t) => {
  const table: [text: string, keys: number[] | null, why: string][] = [
    ['ctrl-],.', [0x1d, 0x2e], 'the default'],
    ['ctrl-p,ctrl-q', [0x10, 0x11], "Docker's"],
    ['ctrl-a', [1], 'one alone'],
    ['ctrl-\\,,', [0x1c, 0x2c], 'a comma as the second'],
    ['a,b', null, 'a letter could not be typed any more'],
    ['ctrl-[,x', null, 'Esc begins every function key'],
    ['', null, 'none'],
    ['ctrl-pp', null, 'no key'],
  ]
  for (const [text, keys, why] of table) t.strictSame(parseDetachKeys(text), keys, why)
  t.equal(keysForPeople('ctrl-],.'), 'Ctrl-] then .')
  t.end()
})

t.test('the keys leave when typed, go through otherwise, and mean nothing in a paste', (t) => {
  const table: [why: string, typed: string, sent: string, pressed: string | null][] = [
    ['typed', 'ab\u001D.', 'ab', 'detach'],
    ['what follows is dropped', 'a\u001D.bc', 'a', 'detach'],
    ['the keys of control', 'a\u001Dc', 'a', 'control'],
    ['the first twice, and a letter', '\u001D\u001Dc', '\u001Dc', null],
    ['the first alone, then another', '\u001Dx', '\u001Dx', null],
    ['the first twice is one for the program', 'a\u001D\u001Db', 'a\u001Db', null],
    ['twice, and the second', '\u001D\u001D.', '\u001D.', null],
    ['in a paste', '\u001B[200~\u001D.\u001B[201~x', '\u001B[200~\u001D.\u001B[201~x', null],
    ['after a paste', '\u001B[200~y\u001B[201~\u001D.', '\u001B[200~y\u001B[201~', 'detach'],
    ['every other byte', '\u0000\u0003\u007Fé', '\u0000\u0003\u007Fé', null],
  ]
  for (const [why, typed, sent, pressed] of table) {
    const bytes = Buffer.from(typed)
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const keys = new WatchedKeys({ detach: [0x1d, 0x2e], control: [0x1d, 0x63] })
      const first = keys.push(bytes.subarray(0, cut))
      const second = first.pressed === null ? keys.push(bytes.subarray(cut)) : first
      const all = first.pressed === null ? Buffer.concat([first.bytes, second.bytes]) : first.bytes
      if (all.toString() !== sent || second.pressed !== pressed)
        t.fail(`${why}, cut at ${cut}: ${JSON.stringify(all.toString())}`)
    }
    t.pass(why)
  }
  const keys = new WatchedKeys({ detach: [0x1d, 0x2e], control: [0x1d, 0x63] })
  t.equal(keys.push(Buffer.from('a\u001Dcb')).rest.toString(), 'b', 'what was typed after them')
  t.end()
})

t.test('control has keys of its own, beside those that leave', (t) => {
  t.equal(controlKeysBeside('ctrl-],.'), 'ctrl-],c')
  t.equal(controlKeysBeside('ctrl-p,ctrl-q'), 'ctrl-p,c')
  t.equal(controlKeysBeside('ctrl-a'), 'ctrl-],c')
  t.equal(controlKeysBeside('ctrl-]'), null, 'the first key alone leaves already')
  t.equal(controlKeysBeside('ctrl-],c'), null)
  t.notOk(areApart([1], [1, 2]))
  t.ok(areApart([1, 3], [1, 2]))
  t.end()
})

const cast = parseCast(
  [
    '{"version":2,"width":80,"height":24,"timestamp":1700000000,"title":"a step","env":{"TERM":"xterm"}}',
    '[0.5, "o", "10%\\r"]',
    '[0.75, "o", "\\u001b[32m100%\\u001b[0m\\r\\nnext\\r\\n"]',
    '[1, "m", "blocked 198.51.100.7:443"]',
    '[61, "r", "100x30"]',
    '[61.25, "x", "3"]',
    '',
  ].join('\n'),
)

t.test('a recording as text, raw, and for asciinema 3', (t) => {
  t.equal(toText(cast), '100%\nnext\n')
  t.equal(toRaw(cast), '10%\r\u001B[32m100%\u001B[0m\r\nnext\r\n')
  t.strictSame(toV3(cast).split('\n'), [
    '{"version":3,"term":{"cols":80,"rows":24,"type":"xterm"},"timestamp":1700000000,"title":"a step"}',
    '[0.500, "o", "10%\\r"]',
    '[0.250, "o", "\\u001b[32m100%\\u001b[0m\\r\\nnext\\r\\n"]',
    '[0.250, "m", "blocked 198.51.100.7:443"]',
    '[60.000, "r", "100x30"]',
    '[0.250, "x", "3"]',
    '',
  ])
  t.end()
})

t.test('a replay keeps its times, at a speed, and cuts long waits', async (t) => {
  const written: string[] = []
  const marks: string[] = []
  const started = performance.now()
  await play(cast, {
    ...{ speed: 10, idleLimitMs: 1000, signal: new AbortController().signal },
    write: async (bytes) => void written.push(Buffer.from(bytes).toString()),
    running: async () => {},
    onMark: (label) => void marks.push(label),
  })
  const took = performance.now() - started
  t.ok(took >= 180 && took < 5_000, `${took} ms for 0.05 + 0.025 + 0.025 + 0.1 + 0.025 s`)
  t.equal(written.length, 2)
  t.strictSame(marks, ['blocked 198.51.100.7:443', 'the terminal is 100x30 from here on'])
})
