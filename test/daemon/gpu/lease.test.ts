/** GPUs of leases, on a real engine with a stand-in for NVIDIA's hook and one for nvidia-smi: see support/gpu-host.ts. */
import { cp, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { pack } from 'tar-stream'
import type { RemoteError } from '../../../daemon/protocol/errors.ts'
import type { GpuView } from '../../../daemon/protocol/gpu.ts'
import type { LeaseRequestInput, LeaseView } from '../../../daemon/protocol/lease.ts'
import { ruleFault } from '../../../runner/trial/blame.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { fakeGpus, GpuHost, revokeDevices, type FakeGpu } from '../../support/gpu-host.ts'

const host = await GpuHost.open()
t.teardown(() => host[Symbol.asyncDispose]())
const gpu = {
  ...host.config,
  smiTimeoutMs: 1500,
  startTimeoutMs: 2000,
  releaseTimeoutMs: 1500,
  quarantineSeconds: 1,
}
const daemon = await TestDaemon.open(host.engine.socketPath, { gpu }).catch(async (error) => {
  await host[Symbol.asyncDispose]()
  throw error
})
t.teardown(() => daemon[Symbol.asyncDispose]())
const { client } = daemon

/** As CUDA images are: it asks for every GPU by its environment. */
const image = await (async () => {
  const tar = pack()
  const base = await host.engine.baseImage()
  tar.entry({ name: 'Dockerfile' }, `FROM ${base}\nENV NVIDIA_VISIBLE_DEVICES=all\n`)
  tar.finalize()
  const context = Readable.from(tar as AsyncIterable<Buffer>)
  const tag = 'closedbook-test/cuda:1'
  return (await host.engine.engine.buildImage({ context, tag, network: 'none' })).id
})()

const [first, second, third, fourth] = fakeGpus as [FakeGpu, FakeGpu, FakeGpu, FakeGpu]

function open(gpus: number, more: Partial<LeaseRequestInput> = {}): Promise<LeaseView> {
  return client.openLease({
    image,
    network: 'offline',
    gpus,
    resources: { cpus: 0.1, memoryBytes: 32 * 1024 ** 2 },
    ...more,
  })
}

/** The error of a request that has to fail. */
async function refusal(attempt: Promise<unknown>): Promise<RemoteError> {
  return attempt.then(
    () => {
      throw new Error('it was not refused')
    },
    (error: unknown) => error as RemoteError,
  )
}

async function sh(lease: string, script: string): Promise<string> {
  let output = ''
  await client.exec(
    lease,
    { argv: ['sh', '-c', script] },
    { onStdout: (_offset, bytes) => void (output += bytes.toString()) },
  )
  return output.trim()
}

const uuids = (view: LeaseView): string[] => view.gpus.map(({ uuid }) => uuid)
const close = (view: LeaseView): Promise<void> => client.closeLease(view.lease, 'test')

async function state({ uuid }: FakeGpu): Promise<GpuView> {
  const found = (await client.gpus()).gpus.find((each) => each.uuid === uuid)
  if (found === undefined) throw new Error(`no GPU ${uuid}`)
  return found
}

async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 15_000
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`in vain waited until ${what}`)
    await delay(20)
  }
}

const allFree = (): Promise<void> =>
  until('every GPU is free', async () =>
    (await client.gpus({ probe: true })).gpus.every((each) => each.state === 'free'),
  )

t.test('24 racing requests for 4 GPUs get 4, each its own', async (t) => {
  const ends = await Promise.allSettled(Array.from({ length: 24 }, () => open(1)))
  const views = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []))
  t.strictSame(views.flatMap(uuids).toSorted(), fakeGpus.map(({ uuid }) => uuid).toSorted())
  const refused = ends.flatMap((end) =>
    end.status === 'rejected' ? [end.reason as RemoteError] : [],
  )
  t.equal(refused.length, 20)
  for (const { code, message } of refused) {
    t.equal(code, 'lease_no_capacity')
    t.match(message, /GPU-0000.* has lease .*try again/)
  }
  for (const view of views) {
    const seen = await sh(
      view.lease,
      'echo $NVIDIA_VISIBLE_DEVICES; cd /dev; ls -d nvidia*; : < nvidia0 && echo opened',
    )
    t.strictSame(seen.split('\n'), [...uuids(view), 'nvidia0', 'opened'])
    t.strictSame((await client.lease(view.lease)).gpus, view.gpus)
  }
  t.match(await state(first), { state: 'leased', driver: '550.54.15', mig: 'off' })
  await Promise.all(views.map(close))
  await allFree()
})

t.test('the choice is by place on the bus, and what is returned is lent again', async (t) => {
  const two = await open(2)
  t.strictSame(uuids(two), [fourth.uuid, third.uuid])
  t.equal(two.gpus[0]?.name, 'NVIDIA H100 80GB HBM3')
  const one = await open(1)
  t.strictSame(uuids(one), [second.uuid])
  await close(two)
  await until('it is free', async () => (await state(fourth)).state === 'free')
  const again = await open(1)
  t.strictSame(uuids(again), [fourth.uuid])
  t.match(await refusal(open(5)), { code: 'lease_refused', message: /this host has 4/ })
  await Promise.all([close(one), close(again)])
  await allFree()
})

t.test('a lease without GPUs sees none, whatever its image asks for', async (t) => {
  const view = await open(0)
  t.equal(
    await sh(view.lease, 'echo $NVIDIA_VISIBLE_DEVICES; ls -d /dev/nvidia* 2>/dev/null'),
    'void',
  )
  t.strictSame(view.gpus, [])
  await close(view)
})

t.test('a sealed lease with a GPU is proven like any other', async (t) => {
  const view = await open(1, { network: 'sealed' })
  t.ok(view.proof.before.length > 5 && view.proof.before.every(({ ok }) => ok))
  await client.freeze(view.lease)
  await close(view)
  await allFree()
})

t.test('a start that fails by the GPU is told with the reason, and nothing is left', async (t) => {
  const containers = async (): Promise<number> => {
    const { engine } = host.engine
    return (await engine.listContainers({})).length
  }
  const table: [mode: 'fail' | 'none' | 'hang', says: RegExp][] = [
    ['fail', /nvml error: driver not loaded/],
    ['none', /the container got 0 GPU nodes instead of 1/],
    ['hang', /did not end within 2 s; the GPU hook hangs/],
  ]
  for (const [mode, says] of table) {
    await host.hook(mode)
    const error = await refusal(open(1))
    t.match(error, { code: 'gpu_unavailable', blame: 'infra', message: says }, mode)
    t.match(error.message, fourth.uuid)
    t.match(
      await state(fourth),
      { state: 'quarantined', reason: says },
      'it is not lent again at once',
    )
    await until('its container is gone', async () => (await containers()) === 0)
    await client.gpus({ probe: true })
    t.equal((await state(fourth)).state, 'free', 'an operator takes it back')
  }
  await host.hook('inject')
  await close(await open(1))
  await allFree()
})

t.test('a GPU that is not well or not empty is passed over, until it is', async (t) => {
  await host.set(fourth, { usedMiB: 22_000, pids: [4711] })
  await host.set(third, { ecc: '3' })
  const view = await open(1)
  t.strictSame(uuids(view), [second.uuid])
  t.match(await state(fourth), { state: 'dirty', reason: /process 4711/ })
  t.match(await state(third), { state: 'quarantined', reason: /3 uncorrectable/ })
  const few = await refusal(open(3))
  t.match(few, { code: 'gpu_unavailable', message: /GPU-3333.* is dirty .*see `closedbook gpus`/ })
  await host.set(fourth)
  await host.set(third)
  const cured = await open(1)
  t.strictSame(uuids(cured), [fourth.uuid], 'a clean look is enough for a dirty one')
  t.equal((await state(third)).state, 'quarantined', 'not for one that was faulty')
  await close(cured)
  await until('its time is over', async () => {
    const found = await open(1).catch(() => null)
    if (found === null) return false
    await close(found)
    return (await state(third)).state === 'free'
  })
  await close(view)
  await allFree()
})

t.test('one that hangs or is off the bus spoils nothing for the others', async (t) => {
  await host.set(fourth, { mode: 'hang' })
  const view = await open(1)
  t.strictSame(uuids(view), [third.uuid])
  t.match(await state(fourth), { state: 'quarantined', reason: /did not answer within 1.5 s/ })
  await host.set(fourth, { mode: 'lost' })
  await host.set(second, { mode: 'gone' })
  const next = await open(1)
  t.strictSame(uuids(next), [first.uuid])
  t.match((await client.gpus({ probe: true })).gpus, [
    { uuid: fourth.uuid, reason: /GPU is lost/ },
    { uuid: third.uuid, state: 'leased', reason: null },
    { uuid: second.uuid },
    { uuid: first.uuid },
  ])
  await Promise.all([close(view), close(next), host.set(fourth), host.set(second)])
  await allFree()
})

t.test('memory that a lease left behind keeps its GPU from the next', async (t) => {
  const view = await open(1)
  await host.set(fourth, { usedMiB: 30_000 })
  await close(view)
  t.match(await state(fourth), { state: 'leased', reason: /waiting until its memory is empty/ })
  await until('the wait is over', async () => (await state(fourth)).state === 'dirty')
  t.match((await state(fourth)).reason, /30000 MiB of its memory/)
  await host.set(fourth)
  await allFree()
})

t.test('a container of somebody else that has a GPU keeps it', async (t) => {
  {
    await using _theirs = await host.engine.container({
      gpus: { mode: 'nvidia', uuids: [fourth.uuid] },
    })
    const view = await open(1)
    t.strictSame(uuids(view), [third.uuid])
    t.match(await state(fourth), { state: 'dirty', reason: /container cbt-.* is of no open lease/ })
    await close(view)
  }
  await allFree()
})

t.test('a GPU that is lost while it works is the fault of nobody but the host', async (t) => {
  const lost = async (view: LeaseView, says: RegExp): Promise<void> => {
    const error = await refusal(client.freeze(view.lease))
    t.match(error, { code: 'gpu_lost', blame: 'infra', message: says })
    t.strictSame(ruleFault('freeze', error), { verdict: 'void', blame: 'infra', retry: true })
    await close(view)
  }
  const off = await open(1)
  await host.set(fourth, { mode: 'lost' })
  await lost(off, /GPU-3333.*GPU is lost.*doesn't count/)
  t.match(await state(fourth), { state: 'quarantined' })
  await host.set(fourth)
  await allFree()

  const xid = await open(1)
  await host.xid(fourth, '79, pid=7, GPU has fallen off the bus.')
  await lost(xid, /Xid 79/)
  await allFree()

  const made = await open(1)
  await host.set(fourth, { ecc: '1' })
  await lost(made, /uncorrectable/)
  await host.set(fourth)
  await allFree()

  const revoked = await open(1)
  const container = (await host.engine.engine.listContainers({})).find(({ name }) =>
    name.includes(revoked.lease),
  )
  // Where only BPF rules the devices no test can take them away.
  if (await revokeDevices(container?.pid ?? 0))
    await lost(revoked, /can't open it any more: .*[Nn]ot permitted/)
  else await close(revoked)

  const vandal = await open(1, { capabilities: ['DAC_OVERRIDE', 'FOWNER'] })
  await sh(vandal.lease, 'rm -f /dev/nvidia0; ln -s /nowhere /dev/nvidia0; chmod 0 /dev')
  t.match(await client.freeze(vandal.lease), { empty: true }, 'what an agent breaks is its own')
  await close(vandal)
  await host.xid(third, '31, pid=7, MMU fault')
  await allFree()
})

t.test('grants outlive a killed daemon, and what the journal forged does not', async (t) => {
  const views = [await open(1), await open(2)] as const
  await daemon.kill()
  await daemon.start()
  t.strictSame((await client.lease(views[0].lease)).gpus, views[0].gpus)
  t.match(await state(fourth), { state: 'leased', lease: views[0].lease })
  const last = await open(1)
  t.strictSame(uuids(last), [first.uuid])
  t.equal((await refusal(open(1))).code, 'lease_no_capacity')
  t.match(
    await client.freeze(views[1].lease),
    { empty: true },
    'the daemon still knows the devices',
  )
  await close(views[1])
  await until('it is free', async () => (await state(second)).state === 'free')

  await daemon.kill()
  const file = path.join(daemon.stateDir, 'leases', 'open', `${views[0].lease}.json`)
  const record = JSON.parse(await readFile(file, 'utf8')) as {
    gpus: { uuid: string }[]
  }
  record.gpus = record.gpus.map((each) => ({ ...each, uuid: second.uuid }))
  await writeFile(file, JSON.stringify(record))
  await daemon.start()
  t.equal((await refusal(client.lease(views[0].lease))).code, 'lease_unknown')
  t.match(await state(first), { state: 'leased', lease: last.lease })
  await close(last)
  await allFree()
})

t.test('an old toolkit or a missing driver stops the lending, with the reason', async (t) => {
  await host.toolkit('NVIDIA Container Runtime Hook version 1.17.7')
  t.match(await refusal(open(1)), { code: 'lease_refused', message: /is 1\.17\.7.*CVE-2025-23266/ })
  t.match((await client.gpus()).refusal, /1\.17\.7/)
  const sick = (await daemon.json(['doctor'])) as { checks: { name: string; todo: string }[] }
  t.match(sick.checks.find(({ name }) => name === 'gpu')?.todo, /tasks for h100 are refused/)
  await host.toolkit('usage: hook')
  t.match(await refusal(open(1)), { code: 'lease_refused', message: /can't be told/ })
  await host.toolkit('NVIDIA Container Runtime Hook version 1.18.0')
  await host.driver('missing')
  t.match(await refusal(open(1)), {
    code: 'gpu_unavailable',
    message: /communicate with the NVIDIA/,
  })
  await host.driver('loaded')
  await allFree()
  await close(await open(1))
  await allFree()
})

t.test('the command line shows them, and the host tells a runner that it has them', async (t) => {
  const view = await open(1)
  const { stdout, stderr } = await daemon.cli(['gpus'])
  t.match(stdout, new RegExp(`${fourth.uuid}  NVIDIA H100 80GB HBM3 .* leased  ${view.lease}`))
  t.match(stderr, /passed by NVIDIA's hook, NVIDIA container toolkit 1\.18\.0/)
  const report = (await daemon.json(['gpus', '--probe'])) as { gpus: GpuView[] }
  t.equal(report.gpus.length, 4)
  t.equal((await client.host()).gpus.length, 4)
  const healthy = (await daemon.json(['doctor'])) as { checks: { name: string; found: string }[] }
  t.equal(healthy.checks.find(({ name }) => name === 'gpu')?.found, '4 found, toolkit 1.18.0')
  await close(view)
})

t.test(
  'a host that lends no GPU refuses a task for an H100 before it builds anything',
  async (t) => {
    await using plain = await TestDaemon.open(host.engine.socketPath, { gpu: { lend: false } })
    t.match(await refusal(plain.client.openLease({ image, gpus: 1 })), {
      code: 'lease_refused',
      message: /gpu\.lend = false.*on a host that has one/,
    })
    const task = path.join(plain.stateDir, 'task')
    await cp(new URL('../../fixtures/tasks/tally', import.meta.url), task, { recursive: true })
    const file = path.join(task, 'task.toml')
    await writeFile(file, (await readFile(file, 'utf8')).replace('"cpu"', '"h100"'))
    const run = await plain.cli(['run', '--task', task, '--harness', 'noop'])
    t.equal(run.code, 65)
    t.match(run.stderr, /needs an H100 .* has no GPU; run it on a host with an H100/)
    t.notMatch(run.stderr, /build/i)
  },
)

t.test('nothing is left of all this', async (t) => {
  t.strictSame(await client.leases(), [])
  t.strictSame(await host.engine.engine.listContainers({}), [])
})
