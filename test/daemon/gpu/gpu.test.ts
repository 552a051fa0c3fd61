import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import t from 'tap'
import { loadDaemonConfig } from '../../../daemon/config.ts'
import type { EngineInfo } from '../../../daemon/engine/engine.ts'
import { allocate, type Candidate } from '../../../daemon/gpu/allocate.ts'
import { holderOf } from '../../../daemon/gpu/holders.ts'
import { judge } from '../../../daemon/gpu/health.ts'
import { parseApps, parseGpus, parseRemaps } from '../../../daemon/gpu/inventory.ts'
import type { GpuReading } from '../../../daemon/gpu/inventory.ts'
import { isFatal, KernelLog, parseXids } from '../../../daemon/gpu/kernel-log.ts'
import { NextRun } from '../../../daemon/gpu/next-run.ts'
import {
  compareVersions,
  findSupport,
  parseToolkitVersion,
  toolkitProblem,
} from '../../../daemon/gpu/toolkit.ts'

const uuid = 'GPU-11111111-aaaa-bbbb-cccc-0123456789ab'
const other = 'GPU-22222222-aaaa-bbbb-cccc-0123456789ab'
const row = `${uuid}, NVIDIA H100 80GB HBM3, 00000000:3B:00.0, 550.54.15, 81559, 4, Disabled, 0, Default`

t.test('what nvidia-smi says is read exactly', async (t) => {
  t.strictSame(parseGpus(`${row}\n`), [
    {
      uuid,
      name: 'NVIDIA H100 80GB HBM3',
      busId: '0000:3b:00.0',
      driver: '550.54.15',
      memoryBytes: 81559 * 1024 ** 2,
      memoryUsedBytes: 4 * 1024 ** 2,
      mig: 'off',
      eccUncorrected: 0,
      computeMode: 'Default',
    },
  ])
  const [plain] = parseGpus(row.replace('Disabled, 0', '[N/A], [Not Supported]'))
  t.match(plain, { mig: null, eccUncorrected: null }, 'a GPU without MIG and ECC')
  t.strictSame(parseGpus('No devices were found\n'), [])
  t.strictSame(parseApps(`${uuid}, 4711\n${other}, 12\n`), [
    [uuid, 4711],
    [other, 12],
  ])
  t.strictSame(parseRemaps(`${uuid}, No, Yes\n${other}, [N/A], [N/A]\n`), [
    [uuid, { pending: false, failed: true }],
  ])
})

t.test('an answer that is not as it must be is a fault, never a guess', async (t) => {
  const table: [why: string, text: string][] = [
    ['an error message', 'Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.'],
    ['a value is missing', row.replace(', Default', '')],
    ['a value too many', `${row}, 7`],
    ['an index instead of a UUID', row.replace(uuid, '0')],
    ['memory with its unit', row.replace('81559', '81559 MiB')],
    ['memory that is not known', row.replace('81559', '[N/A]')],
    ['an unknown MIG mode', row.replace('Disabled', 'Perhaps')],
    ['a name that could not be read', row.replace('NVIDIA H100 80GB HBM3', '[GPU requires reset]')],
    ['no bus address', row.replace('00000000:3B:00.0', '3B')],
  ]
  for (const [why, text] of table)
    t.throws(() => parseGpus(text), { kind: 'unreadable', message: /can't be read/ }, why)
  t.throws(() => parseApps(`${uuid}, [Not Found]`), { message: /can't be read/ })
})

t.test('a GPU is lent only when it is well and empty', async (t) => {
  const well: GpuReading = { ...(parseGpus(row)[0] as GpuReading), remap: null, pids: [] }
  const table: [why: string, Partial<GpuReading>, state: string, says: RegExp][] = [
    ['somebody computes on it', { pids: [4711] }, 'dirty', /process 4711/],
    ['its memory is in use', { memoryUsedBytes: 2e9 }, 'dirty', /1907 MiB/],
    ['it made up data', { eccUncorrected: 1 }, 'quarantined', /1 uncorrectable/],
    [
      'its memory wears out',
      { remap: { pending: false, failed: true } },
      'quarantined',
      /replaced/,
    ],
    ['only whole ones are lent', { mig: 'on' }, 'quarantined', /MIG is on/],
    [
      'one process at a time',
      { computeMode: 'Exclusive_Process' },
      'quarantined',
      /nvidia-smi -c 0/,
    ],
    ['a fault comes before dirt', { pids: [1], eccUncorrected: 2 }, 'quarantined', /uncorrectable/],
  ]
  const limits = { memoryFloorBytes: 512 * 1024 ** 2 }
  for (const [why, change, state, says] of table)
    t.match(judge({ ...well, ...change }, limits), { state, reason: says }, why)
  t.equal(judge(well, limits), null)
  const pending = { ...well, remap: { pending: true, failed: false } }
  t.equal(judge(pending, limits), null, 'a row that will be remapped at the next reset')
})

t.test('the same GPUs in the same states give the same choice', async (t) => {
  const gpu = (id: string, busId: string, state: Candidate['state'] = 'free'): Candidate => ({
    uuid: id,
    busId,
    state,
  })
  const gpus = [gpu('a', '3'), gpu('b', '1'), gpu('c', '2', 'leased'), gpu('d', '0', 'dirty')]
  t.strictSame(allocate(gpus, 2), { kind: 'granted', uuids: ['b', 'a'] })
  t.strictSame(allocate(gpus.toReversed(), 2), { kind: 'granted', uuids: ['b', 'a'] })
  t.strictSame(allocate(gpus, 3), { kind: 'busy' }, 'one comes back when its lease closes')
  t.strictSame(allocate(gpus, 4), { kind: 'unavailable' }, 'nobody promises the dirty one')
  t.strictSame(allocate(gpus, 5), { kind: 'never' })
})

t.test('a container that asked for a GPU by number may have any', async (t) => {
  const ids: [id: string, has: boolean][] = [
    [uuid, true],
    [`nvidia.com/gpu=${uuid}`, true],
    ['all', true],
    ['nvidia.com/gpu=0', true],
    [other, false],
    ['vendor.com/nic=eth1', false],
  ]
  for (const [id, has] of ids)
    t.equal(holderOf(uuid, [{ name: 'x', deviceIds: [id] }]) !== null, has, id)
})

t.test("the kernel's log is read from now on, for faults of the driver only", async (t) => {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'cb-xid-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  const file = path.join(directory, 'log')
  writeFileSync(file, '4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n')
  using log = new KernelLog(file)
  t.strictSame(log.news(), [], 'what an older boot or a repaired fault left there')
  appendFileSync(file, '4,2,2,-;NVRM: Xid (PCI:0000:3B:00): 48, pid=7, Double Bit ECC Error\n')
  t.strictSame(log.news(), [
    { busId: '0000:3b:00.0', code: 48, text: 'Xid 48, pid=7, Double Bit ECC Error' },
  ])
  t.strictSame(log.news(), [])
  using absent = new KernelLog(path.join(directory, 'none'))
  t.strictSame(absent.news(), [])
  const codes = [13, 31, 43, 45, 48, 64, 68, 74, 79, 94, 95, 109, 119]
  const fatal = codes.filter((code) =>
    parseXids(`NVRM: Xid (0000:3b:00): ${code}, x`).some((xid) => isFatal(xid)),
  )
  t.strictSame(fatal, [48, 64, 74, 79, 95, 119], 'the others are what a program did wrong')
})

t.test('a toolkit that lets images escape is not used', async (t) => {
  t.equal(
    parseToolkitVersion('NVIDIA Container Runtime Hook version 1.17.8\ncommit: f00'),
    '1.17.8',
  )
  t.equal(parseToolkitVersion('NVIDIA Container Toolkit CLI version 1.18.0-rc.2'), '1.18.0-rc.2')
  t.equal(parseToolkitVersion('usage: hook [flags]'), null)
  for (const version of ['1.17.8', '1.17.10', '1.18.0-rc.1', '2.0.0'])
    t.equal(toolkitProblem(version), null, version)
  for (const version of ['1.17.7', '1.9.0', '1.17.8-rc.1', null])
    t.match(toolkitProblem(version), /CVE-2025-23266.*1\.17\.8 or newer/, String(version))
  t.ok(compareVersions('1.2.10', '1.2.9') > 0)
})

t.test('the engine is asked in the way that it can serve', async (t) => {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'cb-cdi-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  const hook = path.join(directory, 'hook')
  writeFileSync(hook, '#!/bin/sh\necho hook version 1.17.9\n', { mode: 0o755 })
  const spec = (name: string, id: string): void =>
    writeFileSync(
      path.join(directory, name),
      JSON.stringify({ kind: 'nvidia.com/gpu', devices: [{ name: id }] }),
    )
  spec('one.json', uuid)
  const config = { mode: 'auto', hook, requireToolkit: true } as const
  const engine = (version: string, devices: string[] | null = null): EngineInfo =>
    ({ version, cdi: { specDirs: [directory], devices } }) as unknown as EngineInfo
  t.match(await findSupport(config, engine('20.10.24'), [uuid]), {
    mode: 'nvidia',
    toolkit: '1.17.9',
    refusal: null,
  })
  t.match(await findSupport(config, engine('26.1.5'), [uuid]), { mode: 'cdi' })
  const named = engine('28.3.0', [`nvidia.com/gpu=${uuid}`])
  t.match(await findSupport(config, named, [uuid]), { mode: 'cdi' })
  t.match(
    await findSupport(config, named, [uuid, other]),
    { mode: 'nvidia' },
    'a spec that knows some GPUs only is not used',
  )
  const cdi = { ...config, mode: 'cdi' } as const
  t.match(await findSupport(cdi, engine('26.1.5'), [other]), { refusal: /names GPU-2222/ })
  t.match(await findSupport(cdi, engine('24.0.0'), [uuid]), { refusal: /too old/ })
  spec('two.json', uuid)
  const twice = await findSupport(cdi, engine('26.1.5'), [uuid])
  t.match(twice.refusal, /two device specs.*one\.json.*two\.json/, 'the engine takes neither')
  const unasked = { ...config, hook: path.join(directory, 'none') }
  t.match(await findSupport(unasked, engine('20.10.24'), [uuid]), { refusal: /can't be told/ })
  const own = { ...unasked, requireToolkit: false }
  t.match(await findSupport(own, engine('20.10.24'), [uuid]), { mode: 'nvidia', refusal: null })
})

t.test('who waits gets a run that began after its call, and shares it', async (t) => {
  const runs: PromiseWithResolvers<void>[] = []
  const begun = new Map<number, () => void>()
  const action = new NextRun(async () => {
    const run = Promise.withResolvers<void>()
    runs.push(run)
    begun.get(runs.length)?.()
    await run.promise
  })
  const hasBegun = (n: number): Promise<void> => new Promise((resolve) => begun.set(n, resolve))
  const firstBegun = hasBegun(1)
  const first = action.next()
  await firstBegun
  const secondBegun = hasBegun(2)
  const waiting = [action.next(), action.next()]
  t.equal(runs.length, 1)
  runs[0]?.reject(new Error('the first fails'))
  await t.rejects(first)
  await secondBegun
  runs[1]?.resolve()
  await Promise.all(waiting)
  t.equal(runs.length, 2)
})

t.test('a relative path in the configuration is refused', async (t) => {
  t.throws(() => loadDaemonConfig({ env: {}, flags: { gpu: { smi: 'nvidia-smi' } } }), {
    message: /gpu\.smi.*absolute path/,
  })
})
