/** What becomes of terminals when the daemon, or the process that holds them, ends: by SIGKILL, and in order. */
import { readFile, readdir } from 'node:fs/promises'
import net from 'node:net'
import path from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import t from 'tap'
import { isLive } from '../../../daemon/engine/cgroup.ts'
import { parseCast } from '../../../daemon/protocol/pty-cast.ts'
import { ptyWorld, until } from '../../support/pty.ts'

const hostOf = async (stateDir: string): Promise<number> => {
  const log = await readFile(path.join(stateDir, 'pty', 'host.log'), 'utf8')
  const last = log
    .trim()
    .split('\n')
    .findLast((line) => line.includes('pty-host.ready'))
  return (JSON.parse(last ?? '{}') as { pid: number }).pid
}

t.test(
  'a daemon that is killed loses no output, ends no program, and its viewers go on',
  async (t) => {
    await using world = await ptyWorld({}, 'trial-of-survival')
    const { daemon, lease } = world
    const view = await world.open(
      'i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo "line $i"; [ $((i % 40)) = 0 ] && sleep 0.05; done; read x; echo got $x; exit 7',
      { hold: true },
    )
    const seen = world.watch(view)
    await seen.until(/line 400\r/)
    const { assisted } = await daemon.client.lease(lease)
    t.notOk(assisted)
    await daemon.kill()
    await seen.until(() => seen.events.includes('lost'))
    const offset = seen.attachment.offset
    await daemon.start()
    await seen.until(/line 4000\r/)
    t.ok(seen.events.filter((event) => event === 'connected').length >= 2)
    t.ok(seen.attachment.offset > offset)
    t.strictSame(seen.gaps, [])
    t.strictSame(seen.broken, [])
    const lines = Array.from({ length: 4000 }, (_, line) => `line ${line + 1}\r\n`).join('')
    t.equal(seen.text(), lines, 'every byte once, in order')
    const second = world.watch(view, { mode: 'control', as: 'person' })
    await second.attachment.write(Buffer.from('here\r'))
    const end = await seen.ended
    t.match(end, {
      exit: { code: 7 },
      cause: 'exited',
      finalOffset: lines.length + 'here\r\ngot here\r\n'.length,
    })
    await until('it is told', async () => (await daemon.client.lease(lease)).assisted)
    await daemon.kill()
    await daemon.start()
    t.ok((await daemon.client.lease(lease)).assisted, 'what a person did is not forgotten')
    t.match(await daemon.client.ptys(lease), [
      { pty: view.pty, state: 'ended', exit: { code: 7 }, personInput: true },
    ])
    const cast = parseCast(await textOf(await daemon.client.ptyRecording(lease, view.pty)))
    const output = cast.events.flatMap(({ code, data }) => (code === 'o' ? [data] : [])).join('')
    t.equal(output, `${lines}here\r\ngot here\r\n`, 'the recording has it all')
    const events = []
    for await (const { event } of daemon.client.events(lease)) events.push(event.type)
    t.strictSame(
      events.filter((type) => type.startsWith('exec')),
      ['exec.start', 'exec.end'],
    )
  },
)

t.test(
  "who came in by the unix socket is served by the host alone: a daemon that hangs holds up no key, and a dead one's viewers come back by the next",
  async (t) => {
    await using world = await ptyWorld()
    const { daemon } = world
    const view = await world.open('read x; echo got $x; read y; echo then $y; exit 5', {
      hold: true,
    })
    const seen = world.watch(view, { mode: 'control' })
    await until('it is attached', () => seen.events.includes('granted'))
    process.kill(daemon.pid, 'SIGSTOP')
    try {
      await seen.attachment.write(Buffer.from('one\r'))
      await seen.until(/got one/)
    } finally {
      process.kill(daemon.pid, 'SIGCONT')
    }
    t.equal((await daemon.client.ptys(view.lease))[0]?.viewers, 1)
    await daemon.kill()
    await seen.until(() => seen.events.includes('lost'))
    await daemon.start()
    await seen.until(() => seen.events.filter((event) => event === 'granted').length === 2)
    await seen.attachment.write(Buffer.from('two\r'))
    t.match(await seen.ended, { exit: { code: 5 } })
    t.match(seen.text(), /then two/)
    t.strictSame(seen.broken, [])
  },
)

t.test(
  'a host that is killed is told as lost: its programs end, the recording is mended, the next session works',
  async (t) => {
    await using world = await ptyWorld()
    const { daemon, lease } = world
    const view = await world.open('echo before; while :; do sleep 0.05; echo tick; done')
    const seen = world.watch(view)
    await seen.until(/tick/)
    const pid = await hostOf(daemon.stateDir)
    process.kill(pid, 'SIGKILL')
    await t.rejects(
      daemon.client.closePty(lease, view.pty),
      { code: 'tool_missing', blame: 'infra' },
      'what is asked meanwhile is told why',
    )
    await t.rejects(seen.ended, { code: 'not_found' })
    await until('it is lost', async () => (await daemon.client.ptys(lease))[0]?.state === 'lost')
    t.match(await daemon.client.ptys(lease), [{ exit: 'unknown', cause: 'host_lost' }])
    const cast = parseCast(await textOf(await daemon.client.ptyRecording(lease, view.pty)))
    t.match(cast.events.at(-1), { code: 'm', data: /ended; what followed is not recorded/ })
    const next = world.watch(await world.open('ps | grep -c "[t]ick"; exit 2', { hold: true }))
    t.match(await next.ended, { exit: { code: 2 } })
    t.match(next.text(), /^0/, 'nothing works on unseen')
  },
)

t.test(
  'a daemon that ends in order takes its host and all sessions along; one that never comes back leaves none for ever',
  async (t) => {
    const world = await ptyWorld()
    const { daemon } = world
    await world.open('sleep 1000')
    const pid = await hostOf(daemon.stateDir)
    t.ok(isLive(pid))
    await world[Symbol.asyncDispose]()
    await until('the host is gone', () => !isLive(pid))
    const other = await ptyWorld()
    await other.open('sleep 1000')
    const orphan = await hostOf(other.daemon.stateDir)
    await other.daemon.kill()
    await other.daemon.start()
    t.ok(isLive(orphan), 'the same host goes on')
    t.equal(await hostOf(other.daemon.stateDir), orphan)
    await other[Symbol.asyncDispose]()
    await until('the host is gone', () => !isLive(orphan))
  },
)

t.test(
  'who waits for a host that hangs is cut with it, and nothing of them stays; a daemon ends in order all the same',
  async (t) => {
    await using world = await ptyWorld()
    const { daemon } = world
    const view = await world.open('sleep 1000')
    const host = await hostOf(daemon.stateDir)
    const request = [
      `GET /v1/leases/${view.lease}/ptys/${view.pty}/attach HTTP/1.1`,
      ...['Host: daemon', 'Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'],
      ...[
        'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
        'Sec-WebSocket-Protocol: closedbook.pty.v1',
      ],
      '\r\n',
    ].join('\r\n')
    const files = async (): Promise<number> => (await readdir(`/proc/${daemon.pid}/fd`)).length
    const before = await files()
    process.kill(host, 'SIGSTOP')
    let cut = 0
    const viewers = Array.from({ length: 40 }, () =>
      net
        .connect(path.join(daemon.stateDir, 'daemon.sock'), function (this: net.Socket) {
          this.write(request)
        })
        .on('error', () => {})
        .once('close', () => (cut += 1))
        // One that came after the host's death is told so, and must read it to see the end.
        .resume(),
    )
    t.teardown(() => {
      for (const viewer of viewers) viewer.destroy()
    })
    await until('they wait', async () => (await files()) >= before + viewers.length - 2)
    for (const viewer of viewers.slice(0, 10)) viewer.destroy()
    process.kill(host, 'SIGKILL')
    await until('all are cut', () => cut === viewers.length)
    // The daemon may have opened a few for itself meanwhile, such as those of the shell that counts disks.
    await until('nothing of them stays', async () => (await files()) <= before + 5)
    const next = world.watch(await world.open('echo here; sleep 1000'))
    await next.until(/here/)
    const hangs = await hostOf(daemon.stateDir)
    process.kill(hangs, 'SIGSTOP')
    await daemon.stop()
    t.notOk(isLive(hangs))
  },
)
