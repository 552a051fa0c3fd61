/**
 * What a PTY session promises whichever way it reaches its program: every byte, sizes, ends, control, and viewers that
 * disturb nobody. Run over each backend of the daemon, in a real container.
 */
import { text as textOf } from 'node:stream/consumers'
import type { Test } from 'tap'
import { Cgroup, isLive } from '../../../daemon/engine/cgroup.ts'
import { DockerEngine } from '../../../daemon/engine/docker.ts'
import { parseCast } from '../../../daemon/protocol/pty-cast.ts'
import type { PtyView } from '../../../daemon/protocol/pty.ts'
import { until, type PtyWorld } from '../../support/pty.ts'

export interface SuiteOptions {
  /** Of ten programs that end at once. */
  readonly rounds: number
  /** Docker's command takes ten seconds to say that there is no such user. */
  readonly withRefusedUser: boolean
}

export function checkSessions(
  t: Test,
  world: PtyWorld,
  { rounds, withRefusedUser }: SuiteOptions,
): void {
  const { daemon, lease, open, watch } = world
  const { client } = daemon
  const viewOf = async (pty: string): Promise<PtyView> => {
    const found = (await client.ptys(lease)).find((view) => view.pty === pty)
    if (found === undefined) throw new Error(`no session ${pty}`)
    return found
  }

  void t.test('how a program ended is told as it was, after its last byte', async (t) => {
    const table: [script: string, exit: object, output: string][] = [
      ['exit 0', { code: 0 }, ''],
      ['echo out; exit 3', { code: 3 }, 'out\r\n'],
      ['printf "no newline"; exit 126', { code: 126 }, 'no newline'],
      ['nosuchcommand', { code: 127 }, 'sh: nosuchcommand: not found\r\n'],
      ['kill -9 $$', { signal: 'SIGKILL' }, ''],
      ['kill -TERM $$', { signal: 'SIGTERM' }, ''],
      ['exec >&- 2>&- <&-; sleep 0.3; exit 5', { code: 5 }, ''],
      ['sleep 60 & echo left; exit 4', { code: 4 }, 'left\r\n'],
      ['printf "\\033_like our mark\\033\\\\x"', { code: 0 }, '\u001B_like our mark\u001B\\x'],
    ]
    for (const [script, exit, output] of table) {
      const seen = watch(await open(script, { hold: true }))
      const end = await seen.ended
      t.match(end, { exit, cause: 'exited', finalOffset: Buffer.byteLength(output) }, script)
      t.equal(seen.text(), output, script)
    }
  })

  void t.test(
    'what was never started is an error, and what is not found ends as shells tell it',
    async (t) => {
      for (const [why, options] of [
        ['no such directory', { cwd: '/nowhere' }],
        ...(withRefusedUser ? [['no such user', { user: 'nobodyhere' }] as const] : []),
      ] as const)
        await t.rejects(
          open('true', options),
          { code: 'exec_not_started', message: /nowhere|nobodyhere/ },
          why,
        )
      const view = await client.openPty(lease, { argv: ['nosuch', 'x'], role: 'agent', hold: true })
      const seen = watch(view)
      t.match(await seen.ended, { exit: { code: 127 } })
      t.equal(seen.text(), 'nosuch: command not found\r\n')
    },
  )

  void t.test(
    'a program finds its terminal at its size from the first instruction, with a type and a language',
    async (t) => {
      const seen = watch(
        await open('stty size; echo $TERM $COLORTERM $LANG $0 [$COLUMNS]; id -un; pwd', {
          ...{ hold: true, cols: 91, rows: 23, user: 'agent', cwd: '/work' },
        }),
      )
      await seen.ended
      t.equal(seen.text(), '23 91\r\nxterm-256color truecolor C.UTF-8 sh []\r\nagent\r\n/work\r\n')
      const clamped = await open('stty size', { hold: true, cols: 1, rows: 70_000 })
      t.match(clamped, { cols: 2, rows: 1000 })
    },
  )

  void t.test(
    'every byte value goes through both ways, and characters that are cut in two',
    async (t) => {
      const view = await open('stty raw -echo; echo ready; exec cat')
      const seen = watch(view, { mode: 'control' })
      await seen.until(/ready/)
      const all = Buffer.concat([
        Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)),
        Buffer.from('€ and 🙂 at every boundary'),
      ])
      for (const byte of all) void seen.attachment.write(Buffer.from([byte]))
      await seen.until(() => seen.bytes().length >= 'ready\n'.length + all.length)
      t.strictSame(seen.bytes().subarray(-all.length), all)
      const paste = Buffer.from(
        Array.from({ length: 20_000 }, (_, line) => `line ${line}\n`).join(''),
      )
      await seen.attachment.write(paste)
      await seen.until(() => seen.bytes().length >= 'ready\n'.length + all.length + paste.length)
      t.ok(seen.bytes().subarray(-paste.length).equals(paste), 'a paste of 230 KB in order')
      t.strictSame(seen.broken, [])
      const early = watch(await open('read x; echo "[$x]"', { hold: true }), { mode: 'control' })
      await early.attachment.write(Buffer.from('typed early\r'))
      await early.until(/\[typed early\]/)
      await client.closePty(lease, view.pty)
      const { events } = parseCast(await textOf(await client.ptyRecording(lease, view.pty)))
      const recorded = events.map(({ code, data }) => (code === 'o' ? data : '')).join('')
      t.match(recorded, /€ and 🙂 at every boundary/, 'no character is torn in the recording')
    },
  )

  void t.test('many programs that end at once lose nothing', async (t) => {
    const wrong: string[] = []
    for (let round = 0; round < rounds; round += 1)
      await Promise.all(
        Array.from({ length: 10 }, async (_, index) => {
          const n = round * 10 + index
          const seen = watch(await open(`seq 1 ${n * 20}; exit ${n}`, { hold: true }))
          const end = await seen.ended
          const wanted = Array.from({ length: n * 20 }, (_line, at) => `${at + 1}\r\n`).join('')
          if (seen.text() !== wanted || JSON.stringify(end.exit) !== `{"code":${n}}`)
            wrong.push(
              `${n}: ${seen.bytes().length} of ${wanted.length} bytes, ${JSON.stringify(end)}`,
            )
        }),
      )
    t.strictSame(wrong, [])
  })

  void t.test(
    'one who looks on gets the screen and what follows, and one who comes late all that is left',
    async (t) => {
      const view = await open(
        'for i in 1 2 3; do echo line $i; done; printf "\\033[31mred\\033[0m > "; read x; echo more; read x',
      )
      const first = watch(view, { mode: 'control' })
      await first.until(/red/)
      const screen = watch(view, { from: undefined as never })
      await screen.until(() => screen.snapshots.length === 1)
      t.match(screen.snapshots[0], { facts: { cols: 120, rows: 40, approximate: false } })
      t.match(screen.snapshots[0]?.text, /line 3\r\n.*\[31mred/s)
      await first.attachment.write(Buffer.from('\r'))
      await screen.until(/more/)
      t.equal(first.bytes().subarray(screen.snapshots[0]?.facts.offset).toString(), screen.text())
      await client.closePty(lease, view.pty)
      const late = watch(view)
      t.match(await late.ended, { cause: 'killed', exit: { signal: 'SIGHUP' } })
      t.equal(late.text(), first.text())
    },
  )

  void t.test(
    'the terminal answers queries with nobody attached, and nobody else does',
    async (t) => {
      const view = await open(
        'stty raw -echo; sleep 0.2; printf "\\033[6n"; dd bs=1 count=6 2>/dev/null | od -An -c; printf "\\033[c\\033]52;c;?\\007\\033[21t"; dd bs=1 count=7 2>/dev/null | od -An -c; sleep 0.3; stty min 0 time 1; dd bs=1 count=1 2>/dev/null | wc -c',
      )
      await until('it ended', async () => (await viewOf(view.pty)).state === 'ended')
      const seen = watch(view)
      await seen.ended
      t.match(seen.text(), /033 +\[ +1 +; +1 +R/, 'where the cursor is')
      t.match(seen.text(), /033 +\[ +\? +1 +; +2 +c/, 'what terminal this is')
      t.match(seen.text(), /\s0\s*$/, 'no clipboard, no title')
    },
  )

  void t.test(
    'only the one who controls types and sets the size; the others are told so',
    async (t) => {
      const view = await open('trap "stty size" WINCH; while :; do read x && echo got $x; done', {
        role: 'person',
      })
      const holder = watch(view, { mode: 'control', cols: 100, rows: 30 })
      await holder.until(() => holder.sizes.includes('100x30'))
      const other = watch(view, { mode: 'view', cols: 20, rows: 5 })
      await other.until(() => other.events.includes('connected'))
      void other.attachment.write(Buffer.from('stolen\r'))
      other.attachment.resize(33, 11)
      await other.until(() => other.events.includes('refused'))
      other.attachment.requestControl()
      await holder.until(() => holder.events.includes('requested'))
      for (let cols = 40; cols <= 99; cols += 1) holder.attachment.resize(cols, 40 + (cols % 20))
      await holder.until(() => holder.sizes.at(-1) === '99x59')
      holder.attachment.grantControl()
      await other.until(() => other.events.includes('granted'))
      t.ok(holder.events.includes('lost'))
      await other.until(() => other.sizes.at(-1) === '33x11')
      await other.until(/11 33\r\n/)
      await other.attachment.write(Buffer.from('mine\r'))
      await other.until(/got mine/)
      t.notMatch(other.text(), /stolen/)
      t.match(await viewOf(view.pty), { cols: 33, rows: 11, controlled: true })
      await client.closePty(lease, view.pty)
      const cast = parseCast(await textOf(await client.ptyRecording(lease, view.pty)))
      const sizes = cast.events.flatMap(({ code, data }) => (code === 'r' ? [data] : []))
      t.equal(sizes.at(-1), '33x11')
      t.ok(sizes.length < 40, 'a storm of sizes is not carried out one by one')
      const agent = await open('read x; stty size')
      const person = watch(agent, { mode: 'control', cols: 50, rows: 10 })
      person.attachment.resize(60, 20)
      await person.attachment.write(Buffer.from('\r'))
      await person.ended
      t.match(person.text(), /40 120/, "an agent's terminal keeps its size")
    },
  )

  void t.test('interrupting a flood takes effect at once', async (t) => {
    const view = await open(`exec yes ${'x'.repeat(200)}`, { hold: true })
    let bytes = 0
    const seen = watch(view, { mode: 'control', onOutput: (part) => void (bytes += part.length) })
    await seen.until(() => bytes > 5_000_000)
    const started = performance.now()
    await seen.attachment.write(Buffer.from([3]))
    t.match((await seen.ended).exit, { signal: 'SIGINT' })
    t.ok(performance.now() - started < 2_000, `${Math.round(performance.now() - started)} ms`)
  })

  void t.test(
    'a viewer that stops reading gets a snapshot and the gap, and holds up nobody',
    async (t) => {
      const view = await open(
        'head -c 4000000 /dev/zero | tr "\\0" x; echo; echo the end; read x',
        {
          hold: true,
        },
      )
      const gate = Promise.withResolvers<void>()
      let got = 0
      const stalled = watch(view, {
        onOutput: (part) => {
          got += part.length
          return gate.promise
        },
      })
      await stalled.until(() => got > 0)
      let whole = 0
      let tail = ''
      const live = watch(view, {
        ...{ mode: 'control', lossless: true },
        onOutput: (part) => {
          whole += part.length
          tail = Buffer.from(part).subarray(-30).toString()
        },
      })
      await live.until(() => tail.includes('the end'))
      t.strictSame(live.gaps, [], 'a lossless one missed nothing')
      t.equal(whole, (await viewOf(view.pty)).bytes)
      gate.resolve()
      await stalled.until(() => stalled.snapshots.length > 0)
      t.equal(stalled.gaps.length, 1)
      t.match(stalled.gaps[0], { reason: /slow|gone/ })
      await stalled.until(() => stalled.attachment.offset === live.attachment.offset)
      t.match(stalled.snapshots[0]?.text, /the end/)
      t.ok(got < 3_000_000, `little was sent to it: ${got}`)
      await client.closePty(lease, view.pty)
    },
  )

  void t.test(
    'ending a session ends all that it started, whatever that did to get away',
    async (t) => {
      const others = new Set(await livePids())
      const view = await open(
        'trap "" HUP TERM; setsid sleep 1000 & (setsid sh -c "trap \\"\\" HUP TERM; sleep 1001 & wait" &) ; sleep 1002 >/dev/null 2>&1 </dev/null & echo up; wait',
      )
      const seen = watch(view)
      await seen.until(/up/)
      let pids: number[] = []
      await until('all of it runs', async () => {
        pids = (await livePids()).filter((pid) => !others.has(pid))
        return pids.length >= 5
      })
      const ended = await client.closePty(lease, view.pty)
      t.match(ended, { state: 'ended', exit: { signal: 'SIGKILL' }, cause: 'killed' })
      t.strictSame(pids.filter(isLive), [])
      t.match(await client.closePty(lease, view.pty), { state: 'ended' }, 'idempotent')
      const timed = watch(await open('sleep 1000', { hold: true, timeoutMs: 300 }))
      t.match(await timed.ended, { cause: 'timeout', exit: { signal: /SIG(HUP|TERM)/ } })
    },
  )

  void t.test(
    'a lease that is frozen ends its terminals; one that is closed still tells of them',
    async (t) => {
      const other = await client.openLease({ image: world.image, network: 'offline' })
      const view = await client.openPty(other.lease, {
        argv: ['sh', '-c', 'echo here; sleep 1000'],
        role: 'agent',
      })
      const seen = watch(view)
      await seen.until(/here/)
      const frozen = await client.freeze(other.lease)
      t.ok(frozen.empty)
      t.match(await seen.ended, { exit: { signal: 'SIGKILL' } })
      await t.rejects(client.openPty(other.lease, { argv: ['true'], role: 'agent' }), {
        code: 'lease_wrong_state',
      })
      await client.closeLease(other.lease, 'done')
      t.match(await client.ptys(other.lease), [
        { pty: view.pty, state: 'ended', exit: { signal: 'SIGKILL' } },
      ])
      t.match(await textOf(await client.ptyRecording(other.lease, view.pty)), /here/)
      const events = []
      for await (const { event } of client.events(other.lease)) events.push(event)
      t.match(
        events.filter(({ type }) => type.startsWith('exec')),
        [
          { type: 'exec.start', exec: view.pty },
          { type: 'exec.end', exec: view.pty, exit: { signal: 'SIGKILL' } },
        ],
      )
    },
  )

  /** Host pids of what runs in the lease beside its init. */
  async function livePids(): Promise<number[]> {
    await using engine = await DockerEngine.connect({ socketPath: daemon.engineSocket })
    const containers = await engine.listContainers({ 'closedbook.lease': lease })
    const pid = containers[0]?.pid ?? 0
    return Cgroup.ofPid(pid)
      .pids()
      .filter((each) => each !== pid && isLive(each))
  }
}
