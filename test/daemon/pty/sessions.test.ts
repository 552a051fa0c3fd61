/** PTY sessions over the engine's API: the suite of both backends, and what is the same whatever runs the program. */
import { text as textOf } from 'node:stream/consumers'
import t from 'tap'
import { WebSocket } from 'ws'
import { parseCast } from '../../../daemon/protocol/pty-cast.ts'
import {
  decodeMessage,
  encodeControl,
  encodeInput,
  ptyProtocol,
} from '../../../daemon/protocol/pty-frames.ts'
import type { PtyView } from '../../../daemon/protocol/pty.ts'
import { webSocketAddress } from '../../../daemon/protocol/target.ts'
import { ptyWorld } from '../../support/pty.ts'
import { checkSessions } from './session-suite.ts'

const world = await ptyWorld()
const { daemon, lease, open, watch } = world
const { client } = daemon
t.teardown(() => world[Symbol.asyncDispose]())

const viewOf = async (pty: string): Promise<PtyView> => {
  const found = (await client.ptys(lease)).find((view) => view.pty === pty)
  if (found === undefined) throw new Error(`no session ${pty}`)
  return found
}

checkSessions(t, world, { rounds: 10, withRefusedUser: true })

t.test(
  'messages that are none of the protocol end their connection and nothing else',
  async (t) => {
    const view = await open('read x')
    const hello = encodeControl({ type: 'hello', mode: 'view' })
    const table: [why: string, messages: (Uint8Array | string)[], code: number][] = [
      ['text', ['hello'], 4000],
      ['input before hello', [encodeInput(1, Buffer.from('x'))], 4000],
      ['an unknown type', [hello, new Uint8Array([99])], 4000],
      ['a message cut short', [hello, new Uint8Array([3, 0])], 4000],
      ['no JSON', [new Uint8Array([16, 0x7b])], 4000],
      ['an unknown control', [encodeControl({ type: 'shutdown' })], 4000],
      ['a second hello', [hello, hello], 4000],
      ['an offset that is not reached', [encodeControl({ type: 'hello', resumeFrom: 1e9 })], 4000],
      ['more than a megabyte', [hello, new Uint8Array(2 * 1024 * 1024)], 1009],
      [
        'input without control, for ever',
        [hello, ...Array.from({ length: 200 }, (_, n) => encodeInput(n, Buffer.from('x')))],
        4003,
      ],
    ]
    for (const [why, messages, code] of table)
      t.equal(await closeCode(view.pty, messages), code, why)
    t.equal(await closeCode('0123456789abcdef', []), 4004, 'no such session')
    t.match(await viewOf(view.pty), { state: 'running', viewers: 0, personInput: false })
    const good = watch(view, { mode: 'control' })
    await good.attachment.write(Buffer.from('\r'))
    t.match(await good.ended, { exit: { code: 0 } })
  },
)

async function closeCode(pty: string, messages: (Uint8Array | string)[]): Promise<number> {
  const { address, options } = webSocketAddress(
    client.target,
    `/v1/leases/${lease}/ptys/${pty}/attach`,
  )
  const socket = new WebSocket(address, ptyProtocol, options)
  const closed = Promise.withResolvers<number>()
  socket.on('error', () => {})
  socket.on('close', (code) => closed.resolve(code))
  socket.on('open', () => {
    for (const message of messages) socket.send(message)
  })
  socket.on('message', (data: Buffer) => void decodeMessage(data))
  return closed.promise
}

t.test('a recording has output, sizes, marks and the end, and no input', async (t) => {
  const view = await open('stty -echo; echo password:; read secret; echo thanks; exit 6', {
    label: 'a step',
  })
  await client.markPty(lease, view.pty, 'step 3')
  const seen = watch(view, { mode: 'control' })
  await seen.until(/password:/)
  await seen.attachment.write(Buffer.from('hunter2\r'))
  await seen.ended
  const text = await textOf(await client.ptyRecording(lease, view.pty))
  const { header, events } = parseCast(text)
  t.match(header, { version: 2, width: 120, height: 40, title: 'a step' })
  const of = (code: string): string[] =>
    events.flatMap((event) => (event.code === code ? [event.data] : []))
  t.equal(of('o').join(''), 'password:\r\nthanks\r\n')
  t.strictSame([of('m'), of('x'), of('i')], [['step 3'], ['6'], []])
  t.match(events.at(-1), { code: 'x' })
  t.notMatch(text, /hunter2/)
})
