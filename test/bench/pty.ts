/**
 * PTY sessions: how fast a flood reaches a viewer, how soon a key is echoed beside `docker exec -it`, and what stalled
 * viewers, many viewers, many sessions, endless lines and storms of sizes cost. The terminal of `docker exec -it` is made
 * by node-pty; both sides of a ratio are measured in turns in one run.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { spawn, type IPty } from 'node-pty'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { PtyView } from '../../daemon/protocol/pty.ts'
import { TestDaemon } from '../support/daemon.ts'
import { watch, until } from '../support/pty.ts'
import {
  bench,
  benchEngine,
  collectOwnGarbage,
  cpuMs,
  option,
  quantile,
  short,
  type Report,
} from './support.ts'

const floodBar = 45
const echoBar = 1.5
const growthBar = 32
const MB = 1_000_000

await bench('pty', async (report) => {
  await using engine = await benchEngine()
  await using daemon = await TestDaemon.open(engine.socketPath)
  const { client } = daemon
  const { lease } = await client.openLease({
    image: engine.images.base,
    network: 'offline',
    resources: { cpus: 2, pids: 4096 },
  })
  const open = (script: string, hold = true): Promise<PtyView> =>
    client.openPty(lease, { argv: ['sh', '-c', script], role: 'agent', hold })
  const world: World = { daemon, client, lease, open, socketPath: engine.socketPath }
  const parts: Record<string, (world: World, report: Report) => Promise<void>> = {
    ...{ flood, echo, stalled, viewers, oneLine, sizes, hostile, sessions, fastExits },
  }
  const only = process.argv.slice(2).filter((word) => word in parts)
  for (const [name, part] of Object.entries(parts))
    if (only.length === 0 || only.includes(name)) await part(world, report)
})

interface World {
  readonly daemon: TestDaemon
  readonly client: DaemonClient
  readonly lease: string
  readonly open: (script: string, hold?: boolean) => Promise<PtyView>
  readonly socketPath: string
}

async function flood({ open, daemon, lease, socketPath }: World, report: Report): Promise<void> {
  const megabytes = option('flood', 270)
  const text = `dd if=/dev/urandom bs=1000000 count=20 2>/dev/null | base64 -w 119 > /tmp/text; i=0; `
  const make = watch(daemon, await open(`${text} wc -c < /tmp/text`))
  await make.ended
  const rounds = Math.ceil(megabytes / 27)
  const script = `i=0; while [ $i -lt ${rounds} ]; do cat /tmp/text; i=$((i+1)); done`
  const rates: number[] = []
  const direct: number[] = []
  for (let turn = 0; turn < 3; turn += 1) {
    direct.push(await dockerFlood(socketPath, lease, script))
    const view = await open(script)
    let bytes = 0
    const before = await usedBy(daemon)
    const started = performance.now()
    const seen = watch(daemon, view, {
      ...{ mode: 'control', lossless: true },
      onOutput: (part) => void (bytes += part.length),
    })
    const end = await seen.ended
    const seconds = (performance.now() - started) / 1000
    const after = await usedBy(daemon)
    if (bytes !== end.finalOffset || seen.gaps.length > 0) throw new Error('output was lost')
    rates.push(bytes / MB / seconds)
    report.figure(
      `flood, turn ${turn + 1}`,
      `${short(bytes / MB)} MB at ${short(bytes / MB / seconds)} MB/s; CPU: daemon ${short((after.daemon - before.daemon) / 1000)} s, host ${short((after.host - before.host) / 1000)} s; docker exec -it ${short(direct.at(-1) ?? 0)} MB/s`,
    )
  }
  report.bar({
    ...{ what: 'flood through WebSocket, nothing lost', value: Math.max(...rates), unit: 'MB/s' },
    ...{ atLeast: floodBar, from: `best of ${rates.map(short).join(', ')}` },
  })
}

/** The same by `docker exec -it` into a terminal that only reads. */
async function dockerFlood(socketPath: string, lease: string, script: string): Promise<number> {
  const pty = dockerExec(socketPath, lease, ['sh', '-c', script])
  let bytes = 0
  const started = performance.now()
  pty.onData((data) => (bytes += data.length))
  await new Promise<void>((resolve) => void pty.onExit(() => resolve()))
  return bytes / MB / ((performance.now() - started) / 1000)
}

function dockerExec(socketPath: string, lease: string, argv: string[]): IPty {
  return spawn('docker', ['-H', `unix://${socketPath}`, 'exec', '-it', `cb-${lease}`, ...argv], {
    ...{ cols: 120, rows: 40, name: 'xterm-256color' },
    env: process.env as Record<string, string>,
  })
}

async function echo({ open, daemon, lease, socketPath }: World, report: Report): Promise<void> {
  const turns = option('keys', 600)
  const ours: number[] = []
  const theirs: number[] = []
  const raw = 'stty raw -echo; echo ready; exec cat'
  const seen = watch(daemon, await open(raw), { mode: 'control', onOutput: () => heard.resolve() })
  let heard = Promise.withResolvers<void>()
  const docker = dockerExec(socketPath, lease, ['sh', '-c', raw])
  let heardDocker = Promise.withResolvers<void>()
  let text = ''
  docker.onData((data) => {
    text += data
    heardDocker.resolve()
  })
  await until('both are ready', () => text.includes('ready') && seen.attachment.offset > 5)
  await delay(200)
  for (let turn = 0; turn < turns; turn += 1) {
    if (turn % 20 === 0) collectOwnGarbage()
    for (const side of turn % 2 === 0 ? ['ours', 'theirs'] : ['theirs', 'ours']) {
      await delay(12)
      const started = performance.now()
      if (side === 'ours') {
        heard = Promise.withResolvers()
        void seen.attachment.write(Buffer.from('k'))
        await heard.promise
        ours.push(performance.now() - started)
      } else {
        heardDocker = Promise.withResolvers()
        docker.write('k')
        await heardDocker.promise
        theirs.push(performance.now() - started)
      }
    }
  }
  docker.kill()
  seen.attachment.close()
  const told = (values: number[]): string =>
    `p50 ${short(quantile(values, 0.5))} ms, p99 ${short(quantile(values, 0.99))}`
  report.figure('keystroke echo', `${told(ours)}; docker exec -it ${told(theirs)}; ${turns} turns`)
  report.bar({
    what: 'keystroke echo, p99 against docker exec -it',
    value: quantile(ours, 0.99) / quantile(theirs, 0.99),
    ...{ unit: 'x', atMost: echoBar },
  })
}

/** What a process takes once for its first flood (compiled code, its heap's size) is no growth by a viewer. */
async function warmUp({ open, daemon }: World): Promise<void> {
  const view = await open(`yes ${'y'.repeat(118)} | head -c ${150 * MB}`)
  await watch(daemon, view, { onOutput: () => undefined }).ended
}

async function stalled(world: World, report: Report): Promise<void> {
  const { open, daemon } = world
  const cold = await memoryOf(daemon)
  await warmUp(world)
  const warm = await memoryOf(daemon)
  report.figure(
    'a first flood of 150 MB without a stalled viewer',
    `daemon +${short(warm.daemon - cold.daemon)} MB, host at ${short(warm.host)} MB`,
  )
  const bytes = option('stalled', 1000) * MB
  const view = await open(`yes ${'y'.repeat(118)} | head -c ${bytes}; echo; echo the end`)
  const gate = Promise.withResolvers<void>()
  let got = 0
  const stuck = watch(daemon, view, {
    onOutput: (part) => {
      got += part.length
      return gate.promise
    },
  })
  await until('it has begun', () => got > 0)
  const before = await memoryOf(daemon)
  let most = before
  let live = 0
  const other = watch(daemon, view, { onOutput: (part) => void (live += part.length) })
  const looking = setInterval(
    () => void memoryOf(daemon).then((now) => (most = larger(most, now))),
    250,
  )
  const started = performance.now()
  const end = await other.ended
  clearInterval(looking)
  gate.resolve()
  await stuck.ended
  report.figure(
    'stalled viewer',
    `${short(end.finalOffset / MB)} MB in ${short((performance.now() - started) / 1000)} s; the other saw ${short(live / MB)} MB and ${other.gaps.length} gaps; the stalled one got ${short(got / MB)} MB, ${stuck.gaps.length} gap, ${stuck.snapshots.length} snapshot; daemon +${short(most.daemon - before.daemon)} MB, host +${short(most.host - before.host)} MB`,
  )
  report.bar({
    what: 'stalled viewer, growth of daemon and pty-host together',
    value: most.daemon - before.daemon + most.host - before.host,
    ...{ unit: 'MB', atMost: growthBar },
  })
}

async function viewers(world: World, report: Report): Promise<void> {
  const { open, daemon } = world
  await warmUp(world)
  const seconds = option('yes', 60)
  const view = await open('exec yes')
  const gate = Promise.withResolvers<void>()
  const counts = Array.from({ length: 10 }, () => 0)
  const all = counts.map((_, n) =>
    watch(daemon, view, {
      mode: n === 0 ? 'control' : 'view',
      onOutput: (part) => {
        counts[n] = (counts[n] ?? 0) + part.length
        return n === 9 ? gate.promise : undefined
      },
    }),
  )
  await until('all see it', () => counts.every((count) => count > 0))
  const before = await memoryOf(daemon)
  let most = before
  let silentMs = 0
  const last = counts.map((count) => ({ count, at: performance.now() }))
  const looking = setInterval(() => {
    void memoryOf(daemon).then((now) => (most = larger(most, now)))
    for (const [n, seen] of last.entries()) {
      const moved = (all[n]?.attachment.offset ?? 0) !== seen.count
      if (moved) last[n] = { count: all[n]?.attachment.offset ?? 0, at: performance.now() }
      else if (n !== 9) silentMs = Math.max(silentMs, performance.now() - seen.at)
    }
  }, 250)
  await delay(seconds * 1000)
  clearInterval(looking)
  gate.resolve()
  await until('the stopped one has its snapshot', () => (all[9]?.snapshots.length ?? 0) > 0)
  const started = performance.now()
  await all[0]?.attachment.write(Buffer.from([3]))
  const end = await all[0]?.ended
  const took = performance.now() - started
  report.figure(
    `yes for ${seconds} s, ten viewers, one of them stopped`,
    `${short((end?.finalOffset ?? 0) / MB)} MB put out; longest silence of a live viewer ${short(silentMs)} ms; daemon +${short(most.daemon - before.daemon)} MB, host +${short(most.host - before.host)} MB; the stopped one: ${all[9]?.gaps.length} gap, ${all[9]?.snapshots.length} snapshots; ${JSON.stringify(end?.exit)}`,
  )
  report.bar({ what: '^C under yes with ten viewers', value: took, unit: 'ms', atMost: 500 })
  report.bar({
    what: 'yes with ten viewers, growth of daemon and pty-host together',
    value: most.daemon - before.daemon + most.host - before.host,
    ...{ unit: 'MB', atMost: growthBar },
  })
}

async function oneLine({ open, daemon }: World, report: Report): Promise<void> {
  const size = option('line', 100) * MB
  const before = await memoryOf(daemon)
  const view = await open(`head -c ${size} /dev/zero | tr '\\0' x; exit 3`)
  let bytes = 0
  let wrong = 0
  const seen = watch(daemon, view, {
    ...{ mode: 'control', lossless: true },
    onOutput: (part) => {
      bytes += part.length
      wrong += part.findIndex((byte) => byte !== 0x78) + 1
    },
  })
  const end = await seen.ended
  const after = await memoryOf(daemon)
  if (bytes !== size || wrong > 0 || JSON.stringify(end.exit) !== '{"code":3}')
    throw new Error(`one line: ${bytes} of ${size} bytes, ${wrong} wrong, ${JSON.stringify(end)}`)
  report.figure(
    `${size / MB} MB in one line`,
    `every byte; daemon +${short(after.daemon - before.daemon)} MB, host +${short(after.host - before.host)} MB`,
  )
}

async function sizes({ client, lease, daemon }: World, report: Report): Promise<void> {
  const view = await client.openPty(lease, {
    argv: ['sh', '-c', 'trap : WINCH; while :; do read x && stty size; done'],
    role: 'person',
  })
  const seen = watch(daemon, view, { mode: 'control', cols: 100, rows: 30 })
  await seen.until(() => seen.sizes.length > 0)
  const rounds = 5_000
  for (let n = 0; n < rounds; n += 1) {
    seen.attachment.resize(2 + ((n * 7919) % 400), 2 + ((n * 104_729) % 200))
    if (n % 100 === 0) await delay(5)
  }
  seen.attachment.resize(97, 41)
  await until('the last size holds', () => seen.sizes.at(-1) === '97x41')
  void seen.attachment.write(Buffer.from('\r'))
  await seen.until(/41 97/)
  await client.closePty(lease, view.pty)
  report.figure(
    'storm of sizes',
    `${rounds + 1} asked for, ${seen.sizes.length} carried out, the last one holds`,
  )
}

/** Sequences that ask and reach out, a thousand times: nobody answers but the session's own terminal, nothing breaks. */
async function hostile({ open, client, lease, daemon }: World, report: Report): Promise<void> {
  const parts = [
    '[6n',
    '[c',
    '[>q',
    ']52;c;cm0gLXJm\\007',
    ']0;title\\007',
    ']11;?\\007',
    'P$qm\\033\\\\',
    '[21t',
    '[?u',
  ]
  const sequences = parts.map((part) => `\\033${part}`).join('')
  const view = await open(
    `stty raw -echo; i=0; while [ $i -lt 1000 ]; do printf '${sequences}'; i=$((i+1)); done; stty min 0 time 5; cat | wc -c; stty sane; read x; exit 4`,
  )
  const lookers = Array.from({ length: 3 }, () => watch(daemon, view))
  const control = watch(daemon, view, { mode: 'control' })
  await control.until(/\d+\s+$/)
  const answers = /(\d+)\s+$/.exec(control.text())?.[1]
  await control.attachment.write(Buffer.from('\r'))
  const end = await control.ended
  const found = (await client.ptys(lease)).find(({ pty }) => pty === view.pty)
  report.figure(
    'nine hostile sequences, 1,000 times, four viewers',
    `${answers} bytes answered by the session's terminal, none by a viewer (a person typed: ${found?.personInput}); exit ${JSON.stringify(end.exit)}; ${lookers.length + 1} viewers saw ${end.finalOffset} bytes`,
  )
}

async function sessions({ open, daemon, client, lease }: World, report: Report): Promise<void> {
  const before = await memoryOf(daemon)
  const started = performance.now()
  const views: PtyView[] = []
  for (let ten = 0; ten < 10; ten += 1)
    views.push(...(await Promise.all(Array.from({ length: 10 }, () => open('read x', false)))))
  const openMs = performance.now() - started
  await delay(2_000)
  const idle = await memoryOf(daemon)
  const cpu = await usedBy(daemon)
  await delay(10_000)
  const spent = await usedBy(daemon)
  report.figure(
    '100 idle sessions',
    `opened in ${short(openMs / 1000)} s; daemon +${short(idle.daemon - before.daemon)} MB, host +${short(idle.host - before.host)} MB (${short(idle.host)} MB); of a core: daemon ${short((spent.daemon - cpu.daemon) / 100)} %, host ${short((spent.host - cpu.host) / 100)} %`,
  )
  await Promise.all(views.map(({ pty }) => client.closePty(lease, pty)))
  const busy: PtyView[] = []
  for (let ten = 0; ten < 10; ten += 1)
    busy.push(
      ...(await Promise.all(
        Array.from({ length: 10 }, () =>
          open(
            'i=0; while [ $i -lt 100 ]; do i=$((i+1)); seq $i $((i+50)); sleep 0.1; done; exit 5',
            false,
          ),
        ),
      )),
    )
  const cpuBusy = await usedBy(daemon)
  const from = performance.now()
  const ends = await Promise.all(busy.map((view) => watch(daemon, view).ended))
  const seconds = (performance.now() - from) / 1000
  const memory = await memoryOf(daemon)
  const done = await usedBy(daemon)
  const right = ends.filter(({ exit }) => JSON.stringify(exit) === '{"code":5}').length
  report.figure(
    '100 busy sessions, each with a viewer',
    `${right} of 100 exits right, ${short(ends.reduce((sum, { finalOffset }) => sum + finalOffset, 0) / MB)} MB in ${short(seconds)} s; daemon ${short(memory.daemon)} MB, host ${short(memory.host)} MB; of a core: daemon ${short((done.daemon - cpuBusy.daemon) / 10 / seconds)} %, host ${short((done.host - cpuBusy.host) / 10 / seconds)} %`,
  )
  if (right !== 100) throw new Error('an exit was wrong')
}

async function fastExits({ open, daemon }: World, report: Report): Promise<void> {
  const count = option('exits', 1000)
  const started = performance.now()
  let wrong = 0
  for (let done = 0; done < count; done += 10)
    await Promise.all(
      Array.from({ length: Math.min(10, count - done) }, async (_, index) => {
        const n = (done + index) % 120
        const seen = watch(daemon, await open(`seq 1 ${n * 10}; exit ${n}`))
        const end = await seen.ended
        const wanted = Array.from({ length: n * 10 }, (_line, at) => `${at + 1}\r\n`).join('')
        if (seen.text() !== wanted || JSON.stringify(end.exit) !== `{"code":${n}}`) wrong += 1
      }),
    )
  report.figure(
    `${count} programs that end at once`,
    `${wrong} wrong; ${short((performance.now() - started) / 1000)} s`,
  )
  if (wrong > 0) throw new Error('output or an exit was wrong')
}

interface Both {
  readonly daemon: number
  readonly host: number
}

function larger(a: Both, b: Both): Both {
  return { daemon: Math.max(a.daemon, b.daemon), host: Math.max(a.host, b.host) }
}

async function hostPid(daemon: TestDaemon): Promise<number> {
  const log = await readFile(path.join(daemon.stateDir, 'pty', 'host.log'), 'utf8').catch(() => '')
  const line = log.split('\n').findLast((each) => each.includes('pty-host.ready'))
  return line === undefined ? 0 : (JSON.parse(line) as { pid: number }).pid
}

/** Resident megabytes. */
async function memoryOf(daemon: TestDaemon): Promise<Both> {
  const rss = async (pid: number): Promise<number> => {
    const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
    return (Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) * 1024) / MB
  }
  return { daemon: await rss(daemon.pid), host: await rss(await hostPid(daemon)) }
}

/** CPU time so far, ms. */
async function usedBy(daemon: TestDaemon): Promise<Both> {
  const host = await hostPid(daemon)
  return { daemon: await cpuMs(daemon.pid), host: host === 0 ? 0 : await cpuMs(host) }
}
