/** Terminals and events of a daemon elsewhere: by URL and token over TLS, through a line that breaks, until it is revoked. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import type http from 'node:http'
import https from 'node:https'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import t from 'tap'
import { WebSocket } from 'ws'
import { createTicket, createToken, revokeToken } from '../../../daemon/protocol/auth-client.ts'
import { ticketProtocolPrefix, type Role } from '../../../daemon/protocol/auth.ts'
import { DaemonClient } from '../../../daemon/protocol/client.ts'
import { leaseEventSchema, type LeaseEvent } from '../../../daemon/protocol/lease.ts'
import { encodeControl, ptyClose, ptyProtocol } from '../../../daemon/protocol/pty-frames.ts'
import { makeCertificate } from '../../support/certificate.ts'
import { cuttingProxy } from '../../support/cutting-proxy.ts'
import { ptyWorld, until, watch } from '../../support/pty.ts'
import { Terminal } from '../../support/terminal.ts'

const directory = await mkdtemp(path.join(os.tmpdir(), 'cbt-'))
t.teardown(() => rm(directory, { recursive: true, force: true }))
const { cert, key, ca } = await makeCertificate(directory)
const port = await freePort()
const world = await ptyWorld(
  { server: { listen: `127.0.0.1:${port}`, tls: { cert, key } } },
  'trial-far-away',
)
const { daemon, lease, open } = world
t.teardown(() => world[Symbol.asyncDispose]())
const here = `https://localhost:${port}`
const tokenOf = async (role: Role): Promise<string> =>
  (await createToken(daemon.client, { role, name: `${role} of a test` })).token
const [viewer, runner] = [await tokenOf('view'), await tokenOf('run')]

/** As on another host: nothing of this daemon is known but its address, a token, and who signed its certificate. */
const far = (args: string, token: string, { url = here, trust = cert } = {}): Terminal =>
  new Terminal(`--url ${url}${trust === '' ? '' : ` --ca ${trust}`} ${args}`, {
    env: { CLOSEDBOOK_TOKEN: token, CLOSEDBOOK_STATE_DIR: path.join(directory, 'none') },
  })
const asks = '\u001Dc'
const leaves = '\u001D.'

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address() as net.AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return address.port
}

async function metric(name: string): Promise<number> {
  const headers = { authorization: `Bearer ${viewer}` }
  const request = https.get(`${here}/metrics`, { headers, ca, agent: false })
  const [response] = (await once(request, 'response')) as [http.IncomingMessage]
  const text = await textOf(response)
  return Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${name} `))
      ?.split(' ')[1],
  )
}

t.test('one looks on from elsewhere, and may no more than the token', async (t) => {
  const view = await open('echo ready; read x; echo "got $x"; exit 5')
  await using terminal = far('attach trial-far', viewer)
  await terminal.until(/read-only; Ctrl-\] then \. leaves/)
  await terminal.until(/ready/)
  terminal.type('typed\r')
  terminal.type(asks)
  await terminal.until(/your role may only look on/)
  terminal.type(leaves)
  await terminal.until(/left; it goes on[\s\S]*status 0/)
  t.ok(await terminal.restored())
  t.match(
    (await daemon.client.ptys(lease)).find(({ pty }) => pty === view.pty),
    { state: 'running', personInput: false },
  )
  const rows: readonly (readonly [why: string, terminal: Terminal, says: RegExp])[] = [
    [
      'nobody vouches for it',
      far('attach trial-far', viewer, { trust: '' }),
      /--ca[\s\S]*status 69/,
    ],
    ['a token of nobody', far('attach trial-far', 'cbt_x'), /unknown, expired or revoked/],
    [
      'in clear, to what is not this host',
      far('attach trial-far', viewer, { url: 'http://198.51.100.7:1' }),
      /everybody can read it/,
    ],
    ['its shell', far('shell trial-far', viewer), /this needs the role run/],
  ]
  for (const [why, refused, says] of rows) {
    await using one = refused
    await one.until(says)
    t.ok(await one.restored(), why)
  }
  t.notOk((await daemon.client.lease(lease)).assisted)
  await daemon.client.closePty(lease, view.pty)
})

t.test('who types hands control to who asks for it, by a key', async (t) => {
  const view = await open(
    'echo ready; while read x; do echo "got $x"; [ "$x" = over ] && exit 3; done',
  )
  await using first = far(`attach trial-far --pty ${view.pty} --control`, runner)
  await first.until(/you type; Ctrl-\] then \. leaves/)
  await using second = far(`attach trial-far --pty ${view.pty}`, runner)
  await second.until(/read-only/)
  await using clash = far('attach trial-far --control-keys ctrl-],.,x', runner)
  await clash.until(/begin alike[\s\S]*status 2/)
  first.type('one\r')
  await second.until(/got one/)
  second.type(`not yet\r${asks}`)
  await second.until(/another types, and was asked for control; Ctrl-\] then c takes/)
  await first.until(/somebody asks for control; Ctrl-\] then c, and it is theirs/)
  second.type(asks)
  await second.until(/you ask for control no more/)
  second.type(asks)
  await first.until(/somebody asks for control[\s\S]*somebody asks for control/)
  first.type(asks)
  await first.until(/you only look on now/)
  await second.until(/you type now; it makes the trial assisted; Ctrl-\] then c hands/)
  first.type('from the first\r')
  second.type('two\r')
  await first.until(/got two/)
  t.notOk(first.text.includes('not yet') || second.text.includes('from the first'))
  second.type(leaves)
  await second.until(/left; it goes on/)
  const before = first.text.length
  first.type(asks)
  await first.until(/you type now/, before)
  first.type('over\r')
  await first.until(/the program ended \(exit 3\)[\s\S]*status 3/)
  t.ok((await first.restored()) && (await second.restored()))
  await until('it is told', async () => (await daemon.client.lease(lease)).assisted)
})

t.test('a line that breaks costs no byte and no key, and neither does a daemon', async (t) => {
  const count =
    'i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo "line $i."; [ $((i%40)) = 0 ] && sleep 0.05; done'
  const view = await open(`${count}; while read x; do echo "got $x"; done`, { hold: true })
  await using between = await cuttingProxy(port)
  await using terminal = far(`attach trial-far --pty ${view.pty} --control`, runner, {
    url: `https://localhost:${between.port}`,
  })
  await terminal.until(/line 400\./)
  between.cut()
  await terminal.until(/connection lost at byte \d+; next try/)
  terminal.type('typed meanwhile\r')
  await terminal.until(/connected again, resumed at byte \d+/)
  await terminal.until(/line 2000\./)
  await daemon.kill()
  await terminal.until(/resumed[\s\S]*connection lost/)
  await daemon.start()
  await terminal.until(/connection lost[\s\S]*resumed[\s\S]*connection lost[\s\S]*resumed/)
  await terminal.until(/got typed meanwhile/)
  const seen = [...terminal.text.matchAll(/line (\d+)\.\r/g)].map(([, n]) => Number(n))
  // what was on the screen when it came is drawn, what followed is passed on
  t.same(
    seen.slice(seen.indexOf(400)),
    Array.from({ length: 3601 }, (_, n) => 400 + n),
  )
  t.equal(terminal.text.split('got typed meanwhile').length, 2, 'once')
  terminal.type(leaves)
  t.ok(await terminal.restored())
  await daemon.client.closePty(lease, view.pty)
})

t.test('a shell and a recording are there from elsewhere, too', async (t) => {
  await using terminal = far('shell trial-far -- sh', runner)
  await terminal.until(/[#$] $/)
  terminal.type('echo $((40+2)); exit 6\r')
  await terminal.until(/42\r[\s\S]*status 6/)
  t.ok(await terminal.restored())
  const { pty = '' } = (await daemon.client.ptys(lease)).at(-1) ?? {}
  await using replay = far(`replay trial-far --pty ${pty} --export txt`, viewer)
  await replay.until(/echo \$\(\(40\+2\)\)[\s\S]*42[\s\S]*status 0/)
})

t.test('a token that is revoked ends whatever looks on by it, and nothing else', async (t) => {
  const view = await open('echo ready; read x; exit 4')
  const token = await tokenOf('run')
  await using terminal = far(`attach trial-far --pty ${view.pty} --control`, token)
  await terminal.until(/you type/)
  await using client = new DaemonClient({ url: here, token, ca })
  const at = `/v1/leases/${lease}/ptys/${view.pty}/attach`
  const { ticket } = await createTicket(client, { path: at, role: 'view' })
  const byTicket = new WebSocket(
    `wss://localhost:${port}${at}`,
    [ptyProtocol, `${ticketProtocolPrefix}${ticket}`],
    { ca, origin: here },
  )
  await once(byTicket, 'open')
  byTicket.send(encodeControl({ type: 'hello' }))
  await once(byTicket, 'message')
  const other = watch(daemon, view)
  await other.until(/ready/)
  const events = client.follow(`/v1/leases/${lease}/events`)
  await events.next()
  const cut = t.rejects(Array.fromAsync(events), { code: 'unauthenticated' })
  await until('all are attached', async () => (await metric('closedbook_pty_attachments')) === 3)
  const closed = once(byTicket, 'close')
  await revokeToken(daemon.client, token)
  t.equal((await closed)[0], ptyClose.unauthorized)
  await terminal.until(/the credential of this attachment has ended[\s\S]*status [1-9]/)
  t.ok(await terminal.restored())
  await cut
  await other.attachment.write(Buffer.from('ignored, for it only looks on'))
  t.match(
    (await daemon.client.ptys(lease)).find(({ pty }) => pty === view.pty),
    { state: 'running', viewers: 1, controlled: false },
    'the program, and who looks on by another credential',
  )
  await using again = far(`attach trial-far --pty ${view.pty}`, token)
  await again.until(/unknown, expired or revoked/)
  await daemon.client.closePty(lease, view.pty)
  await other.ended
})

t.test('events of a lease are followed from elsewhere, by number, over a restart', async (t) => {
  await using client = new DaemonClient({ url: here, token: viewer, ca })
  const over = new AbortController()
  const seen: LeaseEvent[] = []
  const states: string[] = []
  const following = (async () => {
    const options = { signal: over.signal, onState: (state: string) => states.push(state) }
    for await (const { n, data } of client.follow(`/v1/leases/${lease}/events`, options)) {
      const event = leaseEventSchema.parse(data)
      if (event.seq !== n) t.fail(`number ${event.seq} came as ${n}`)
      seen.push(event)
    }
  })()
  const ran = (label: string): boolean =>
    seen.some(({ event }) => event.type === 'exec.start' && event.label === label)
  await daemon.client.exec(lease, { argv: ['true'], label: 'before' })
  await until('it is heard of', () => ran('before'))
  await daemon.kill()
  await daemon.start()
  await daemon.client.exec(lease, { argv: ['true'], label: 'after' })
  await until('it is heard of', () => ran('after'))
  over.abort()
  await following
  t.same(
    seen.map(({ seq }) => seq),
    seen.map((_, index) => index + 1),
    'each once, in order',
  )
  t.ok(states.includes('lost'))
})

t.test('what terminals do is counted in the metrics', async (t) => {
  const before = await metric('closedbook_ptys_opened_total')
  const view = await open('head -c 3000000 /dev/zero | tr "\\0" x; exec sleep 1000')
  await until('all is out', async () =>
    (await daemon.client.ptys(lease)).some(({ pty, bytes }) => pty === view.pty && bytes >= 3e6),
  )
  const late = watch(daemon, view, { from: 0 })
  await late.until(() => late.gaps.length > 0 && late.snapshots.length > 0)
  t.equal(await metric('closedbook_ptys{role="agent"}'), 1)
  t.equal(await metric('closedbook_ptys{role="person"}'), 0)
  t.equal(await metric('closedbook_ptys_opened_total'), before + 1)
  t.equal(await metric('closedbook_pty_attachments'), 1)
  t.ok((await metric('closedbook_pty_program_bytes_total')) >= 3e6)
  t.ok((await metric('closedbook_pty_gaps_total')) >= 1)
  t.ok((await metric('closedbook_pty_gap_bytes_total')) >= 3e6 - 2 * 1024 ** 2)
  t.ok((await metric('closedbook_pty_snapshots_total')) >= 1)
  t.ok((await metric('closedbook_pty_sent_bytes_total')) >= 1)
  t.ok((await metric('closedbook_pty_refused_total')) >= 1)
  t.equal(await metric('closedbook_pty_unrecorded_bytes_total'), 0)
  t.equal(await metric('closedbook_stream_sockets'), 0)
  await daemon.client.closePty(lease, view.pty)
  await late.ended
  await until('it is gone', async () => (await metric('closedbook_ptys{role="agent"}')) === 0)
})
