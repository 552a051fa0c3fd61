/** A lease from its opening to its end: every way to fail or to leave gives back all that it held. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { Cgroup } from '../../../daemon/engine/cgroup.ts'
import { RemoteError } from '../../../daemon/protocol/errors.ts'
import type { LeaseRequestInput } from '../../../daemon/protocol/lease.ts'
import { eventLine, SandboxWorld, until } from './setup.ts'

const mebibyte = 1024 ** 2
const world = await SandboxWorld.open({
  capacity: { leases: 3, cpuShare: 2, memoryFraction: 0.5 },
})
t.teardown(() => world[Symbol.asyncDispose]())
const { daemon } = world
const { client } = daemon

const refusal = async (request: Partial<LeaseRequestInput>): Promise<string> => {
  try {
    return `opened ${await world.lease(request)}`
  } catch (error) {
    if (!(error instanceof RemoteError)) throw error
    return `${error.code} (${error.blame}): ${error.message}`
  }
}

const nothingLeft = async (): Promise<boolean> =>
  (await world.containers()) === 0 &&
  (await client.leases()).length === 0 &&
  (await readdir(path.join(daemon.stateDir, 'leases', 'open'))).length === 0

void t.test('a request that can not be served says why and leaves nothing behind', async (t) => {
  const absent = `sha256:${'0'.repeat(64)}`
  const bundle = 'f'.repeat(64)
  const { cpus, memoryBytes } = await client.host()
  const rows: readonly (readonly [string, Partial<LeaseRequestInput>, RegExp])[] = [
    ['an image that is not there', { image: absent }, /^image_missing \(operator\)/],
    ['a tag', { image: 'closedbook/sglang-cpu:0.5.9' }, /^image_not_pinned/],
    [
      'a user that the image lacks',
      { user: 'nobody-knows' },
      /^exec_not_started \(caller\).*could not be started/,
    ],
    [
      'a bundle that was not brought',
      { mounts: [{ bundle, target: '/tests' }] },
      /no bundle f+ here/,
    ],
    ['a GPU on a host without one', { gpus: 1 }, /^(lease_refused|gpu_unavailable).*GPU/],
    ['more CPUs than there are', { resources: { cpus: cpus + 1 } }, /^lease_refused.*CPUs/],
    ['more memory than is lent', { resources: { memoryBytes } }, /^lease_refused.*MiB/],
    [
      'an offline lease with a gateway',
      { network: 'offline', execInto: 'abcdefabcdef' },
      /^bad_request.*offline/,
    ],
    ['an id that is none', { id: '../../etc/passwd' }, /^bad_request.*id/],
    [
      'an unknown key',
      { privileged: true } as Partial<LeaseRequestInput>,
      /^bad_request.*privileged/,
    ],
    [
      'a host that is not canonical',
      { policy: { version: 1, connect: { allow: ['Example.COM'] } } },
      /^bad_request.*example\.com/,
    ],
    [
      'a capability beyond the list',
      { capabilities: ['NET_ADMIN'] } as unknown as Partial<LeaseRequestInput>,
      /^bad_request/,
    ],
    [
      'a policy under which a canary would not be refused',
      { policy: { version: 1, connect: { allow: ['*.canary.example'] } } },
      /^proof_failed \(infra\).*dns-name ended with/,
    ],
    ['a mount over our own', { mounts: [{ bundle, target: '/.closedbook/init' }] }, /bundle|taken/],
  ]
  for (const [what, request, said] of rows) t.match(await refusal(request), said, what)
  t.ok(await nothingLeft())
})

void t.test(
  'a client that goes away while its lease opens takes it along, at any moment',
  async (t) => {
    for (const ms of [1, 40, 80, 120, 160, 200, 240, 280, 320, 360, 400]) {
      const opening = client.openLease({ image: world.image }, { signal: AbortSignal.timeout(ms) })
      const outcome = await opening.then(
        ({ lease }) => lease,
        () => null,
      )
      if (outcome !== null) await client.closeLease(outcome, 'it was quicker')
    }
    await until('all is given back', nothingLeft)
    t.pass()
  },
)

void t.test(
  'a repeated request is the same lease, and ids are not used for two at once',
  async (t) => {
    const request = { image: world.image, id: 'sameleaseonce' }
    const [first, second] = await Promise.all([
      client.openLease(request),
      client.openLease(request),
    ])
    t.equal(first.createdAt, second.createdAt)
    t.equal((await client.openLease(request)).createdAt, first.createdAt)
    t.equal(await world.containers(), 1)
    await client.closeLease(first.lease, 'done')
    t.ok(await nothingLeft())
  },
)

void t.test('leases beyond what the host lends wait for their turn outside', async (t) => {
  const small = { resources: { cpus: 1, memoryBytes: 64 * mebibyte } }
  const leases = await Promise.all([world.lease(small), world.lease(small), world.lease(small)])
  t.match(await refusal(small), /^lease_no_capacity \(operator\): 3 leases hold .*try again/)
  await client.closeLease(leases[0], 'makes room')
  leases[0] = await world.lease(small)
  for (const lease of leases) await client.closeLease(lease, 'done')
  const { cpus } = await client.host()
  const whole = [
    await world.lease({ resources: { cpus } }),
    await world.lease({ resources: { cpus } }),
  ]
  t.match(await refusal({ resources: { cpus: 0.5 } }), /^lease_no_capacity/, 'CPUs are counted too')
  for (const lease of whole) await client.closeLease(lease, 'done')
  t.ok(await nothingLeft())
})

void t.test(
  'closing ends what runs in it, may be asked twice, and is told to those who wait',
  async (t) => {
    const lease = await world.lease()
    const running = world.run(lease, ['sh', '-c', 'echo started; sleep 100'])
    const followed: string[] = []
    const following = (async () => {
      for await (const { event } of client.events(lease, { follow: true }))
        followed.push(event.type === 'state' ? `state ${event.state}` : event.type)
    })()
    await until('it runs', async () =>
      (await Array.fromAsync(client.events(lease))).some(
        ({ event }) => event.type === 'exec.start',
      ),
    )
    const started = performance.now()
    await Promise.all([
      client.closeLease(lease, 'the test says so'),
      client.closeLease(lease, 'twice'),
    ])
    t.ok(performance.now() - started < 9000, 'no grace period is waited out')
    const end = await running.then(
      ({ end: { cause } }) => cause,
      (error: unknown) => (error as RemoteError).code,
    )
    t.match(end, /killed|container_gone/)
    await following
    t.strictSame(followed.slice(0, 5), [
      ...['creating', 'sealing', 'proving', 'ready'].map((state) => `state ${state}`),
      'exec.start',
    ])
    t.ok(followed.includes('state closing') && followed.includes('exec.end'))
    await client.closeLease(lease, 'a third time')
    const gone = { code: 'lease_unknown', message: /is closed: (the test says so|twice)/ }
    await t.rejects(client.lease(lease), gone)
    await t.rejects(world.run(lease, ['true']), { code: 'lease_unknown' })
    await t.rejects(client.freeze(lease), { code: 'lease_unknown' })
    t.ok(await nothingLeft())
  },
)

void t.test('a frozen lease runs nothing more, and its files can still be read', async (t) => {
  const lease = await world.lease()
  await world.run(lease, ['sh', '-c', 'echo kept > /tmp/file; setsid sleep 100 >/dev/null 2>&1 &'])
  const report = await client.freeze(lease)
  t.match(report, { empty: true, oomKills: 0, diskLimitHit: false })
  t.ok(report.killed >= 1)
  t.strictSame(await client.freeze(lease), report)
  await t.rejects(world.run(lease, ['true']), { code: 'lease_wrong_state', message: /is frozen/ })
  const { tar, kind } = await client.readArchive(lease, '/tmp/file')
  const bytes = Buffer.concat(await Array.fromAsync(tar as AsyncIterable<Buffer>))
  t.equal(kind, 'file')
  t.ok(bytes.includes('kept'))
  const proof = await client.prove(lease)
  t.ok(proof.ok)
  t.ok(proof.canaries.length >= 8)
  await client.closeLease(lease, 'done')
})

void t.test(
  'a command that is only being started when the freeze comes runs not a moment after it',
  async (t) => {
    for (const ms of [0, 5, 10, 20, 40, 60]) {
      const lease = await world.lease()
      const running = world.run(lease, ['sh', '-c', 'touch /tmp/ran; exec sleep 60']).then(
        ({ end: { cause } }) => cause,
        (error: unknown) => (error as RemoteError).code,
      )
      await delay(ms)
      const started = performance.now()
      t.match(await client.freeze(lease), { empty: true })
      t.ok(performance.now() - started < 20_000)
      t.match(
        await running,
        /^(killed|exited|lease_wrong_state)$/,
        `${ms} ms after it was asked for`,
      )
      t.strictSame(Cgroup.ofPid(await world.pidOf(lease)).pids(), [await world.pidOf(lease)])
      await client.closeLease(lease, 'done')
    }
  },
)

void t.test('a lease that nobody renews is closed when its time is over', async (t) => {
  const lease = await world.lease({ ttlSeconds: 10 })
  const renewed = await world.lease({ ttlSeconds: 10 })
  const { expiresAt } = await client.lease(renewed)
  const renewal = setInterval(() => void client.renew(renewed).catch(() => {}), 3000)
  t.teardown(() => clearInterval(renewal))
  await until(
    'it is closed',
    async () => !(await client.leases()).some((view) => view.lease === lease),
  )
  const kept = await client.lease(renewed)
  t.equal(kept.state, 'ready')
  t.ok(kept.expiresAt > expiresAt)
  clearInterval(renewal)
  await client.closeLease(renewed, 'done')
  t.ok(await nothingLeft())
})

void t.test(
  'a second daemon for the same socket or state is refused and harms nothing',
  async (t) => {
    const lease = await world.lease()
    const main = fileURLToPath(new URL('../../../daemon/main.ts', import.meta.url))
    const second = async (...args: string[]): Promise<{ code: number; words: string }> => {
      const child = spawn(
        process.execPath,
        [
          '--no-warnings',
          main,
          '--state-dir',
          daemon.stateDir,
          '--engine-socket',
          daemon.engineSocket,
          ...args,
        ],
        { stdio: ['ignore', 'ignore', 'pipe'] },
      )
      let words = ''
      child.stderr.on('data', (chunk: Buffer) => (words += chunk.toString()))
      const [code] = (await once(child, 'close')) as [number]
      return { code, words }
    }
    const elsewhere = path.join(daemon.stateDir, 'second.yaml')
    await writeFile(
      elsewhere,
      JSON.stringify({ socket: path.join(daemon.stateDir, 'second.sock') }),
    )
    t.teardown(() => rm(elsewhere, { force: true }))
    for (const args of [[], ['--config', elsewhere]]) {
      const { code, words } = await second(...args)
      t.equal(code, 75, words)
      t.match(words, /a daemon already .*closedbook down/)
    }
    t.match((await world.run(lease, ['echo', 'unharmed'])).output, 'unharmed')
    await client.closeLease(lease, 'done')
  },
)

void t.test(
  'an agent that ends its own sandbox is told apart, and what was counted stands',
  async (t) => {
    const lease = await world.lease({ capabilities: ['KILL'] })
    await world.run(lease, ['curl', '-s', 'http://198.51.100.7:8080'])
    await world.audit(lease)
    await world.run(lease, ['python3', '-c', 'import os; os.kill(1, 15)']).catch(() => {})
    await t.rejects(
      until('the freeze sees it', () => client.freeze(lease), 5000),
      { code: 'container_gone', message: /ended by itself|not running/ },
    )
    t.match(await client.egress(lease), { attempts: 1, byReason: { direct_tcp: 1 } })
    t.strictSame((await world.audit(lease)).map(eventLine), [
      'census tcp - 198.51.100.7 8080 deny direct_tcp x1',
    ])
    await client.closeLease(lease, 'done')
    t.ok(await nothingLeft())
  },
)

void t.test('a daemon that is told to end closes every lease first', async (t) => {
  await Promise.all([world.lease(), world.lease()])
  const { instance } = await client.host()
  await daemon.stop()
  const left = await world.engine.listContainers({ 'closedbook.instance': instance })
  t.strictSame(left, [])
  t.strictSame(await readdir(path.join(daemon.stateDir, 'leases', 'open')), [])
  await daemon.start()
  t.strictSame(await client.leases(), [])
})
