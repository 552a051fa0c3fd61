import { mkdtemp, rm, symlink, mkdir } from 'node:fs/promises'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { checkMountSources, toCreateOptions } from '../../../daemon/engine/container-spec.ts'
import type { ContainerSpec } from '../../../daemon/engine/container-spec.ts'
import type { EngineInfo } from '../../../daemon/engine/engine.ts'
import { seccompProfile } from '../../../daemon/engine/seccomp.ts'
import { EngineError } from '../../../daemon/errors.ts'
import { resourcesSchema } from '../../../daemon/protocol/lease.ts'

const engine: EngineInfo = {
  version: '26.1.5',
  apiVersion: '1.45',
  architecture: 'x86_64',
  kernel: '6.1.0',
  cpus: 2,
  memoryBytes: 8 * 1024 ** 3,
  cgroupVersion: '2',
  cgroupDriver: 'systemd',
  storageDriver: 'overlay2',
  dataRoot: '/var/lib/docker',
  runtimes: ['io.containerd.runc.v2', 'runc'],
  securityOptions: [],
  name: 'host',
}

const imageId = `sha256:${'a'.repeat(64)}`

function specOf(overrides: Partial<ContainerSpec> = {}): ContainerSpec {
  return {
    image: imageId,
    name: 'cb-0123456789ab',
    hostname: 'sandbox',
    env: { LANG: 'C.UTF-8' },
    labels: { 'closedbook.lease': 'x' },
    capabilities: ['CHOWN'],
    resources: resourcesSchema.parse({ cpus: 1.5, pids: 100, shmBytes: 0 }),
    readOnlyMounts: [{ source: '/srv/bundles/abc', target: '/tests' }],
    mountRoots: ['/srv/bundles'],
    initPath: '/usr/bin/catatonit',
    busyboxPath: '/usr/bin/busybox',
    ...overrides,
  }
}

function refusal(run: () => unknown): { code: string; message: string } {
  try {
    run()
  } catch (thrown) {
    if (thrown instanceof EngineError) return { code: thrown.code, message: thrown.message }
    throw thrown
  }
  return { code: 'accepted', message: '' }
}

t.test(
  'a spec becomes a container with no network, no entrypoint of its image and no way up',
  async (t) => {
    const options = toCreateOptions(
      specOf({
        user: 'agent',
        workdir: '/work',
        scratchMounts: [{ target: '/scratch', sizeBytes: 4096 }],
      }),
      engine,
    )
    const { HostConfig: host, ...body } = options
    t.strictSame(body, {
      Image: imageId,
      name: 'cb-0123456789ab',
      Hostname: 'sandbox',
      User: 'agent',
      WorkingDir: '/work',
      Entrypoint: ['/.closedbook/init', '-P'],
      Cmd: [],
      Healthcheck: { Test: ['NONE'] },
      Env: ['LANG=C.UTF-8', 'NVIDIA_VISIBLE_DEVICES=void'],
      Labels: { 'closedbook.lease': 'x' },
      AttachStdin: false,
      AttachStdout: false,
      AttachStderr: false,
      OpenStdin: false,
      Tty: false,
    })
    const { SecurityOpt, Mounts, ...rest } = host ?? {}
    t.strictSame(rest, {
      NetworkMode: 'none',
      Dns: ['127.0.0.1'],
      ExtraHosts: ['sandbox:127.0.0.1'],
      CapDrop: ['ALL'],
      CapAdd: ['CHOWN'],
      Privileged: false,
      PidsLimit: 100,
      Memory: 2 * 1024 ** 3,
      MemorySwap: 2 * 1024 ** 3,
      NanoCpus: 1_500_000_000,
      ShmSize: 4096,
      OomScoreAdj: 500,
      Ulimits: [{ Name: 'core', Soft: 0, Hard: 0 }],
      Init: false,
      Runtime: 'runc',
      AutoRemove: false,
      RestartPolicy: { Name: 'no' },
      LogConfig: { Type: 'none', Config: {} },
      IpcMode: 'private',
    })
    t.equal(SecurityOpt?.[0], 'no-new-privileges')
    t.strictSame(
      JSON.parse(String(SecurityOpt?.[1]).replace(/^seccomp=/, '')),
      seccompProfile('x86_64', ['CHOWN']),
    )
    t.strictSame(
      Mounts?.map(({ Type, Source, Target, ReadOnly }) => [Type, Source, Target, ReadOnly]),
      [
        ['bind', '/usr/bin/catatonit', '/.closedbook/init', true],
        ['bind', '/usr/bin/busybox', '/.closedbook/busybox', true],
        ['bind', '/srv/bundles/abc', '/tests', true],
        ['tmpfs', '', '/scratch', undefined],
      ],
    )
  },
)

t.test(
  'GPUs are passed by UUID, and the variable that CUDA images read names them and no others',
  async (t) => {
    const nvidia = toCreateOptions(specOf({ gpus: { mode: 'nvidia', uuids: ['GPU-1'] } }), engine)
    t.strictSame(nvidia.HostConfig?.DeviceRequests, [
      { Driver: 'nvidia', DeviceIDs: ['GPU-1'], Capabilities: [['gpu', 'compute', 'utility']] },
    ])
    t.strictSame(nvidia.Env, ['LANG=C.UTF-8', 'NVIDIA_VISIBLE_DEVICES=GPU-1'])
    const cdi = toCreateOptions(specOf({ gpus: { mode: 'cdi', uuids: ['GPU-1'] } }), engine)
    t.strictSame(cdi.HostConfig?.DeviceRequests, [
      { Driver: 'cdi', DeviceIDs: ['nvidia.com/gpu=GPU-1'] },
    ])
  },
)

t.test('what no sandbox may have is refused, with the reason', async (t) => {
  const mount = (source: string, target = '/tests'): Partial<ContainerSpec> => ({
    readOnlyMounts: [{ source, target }],
  })
  const extra = (more: object): Partial<ContainerSpec> => more
  const table: [why: string, Partial<ContainerSpec>, code: string, says: RegExp][] = [
    ['a tag can move', { image: 'debian:trixie' }, 'image_not_pinned', /sha256/],
    ['so can a short id', { image: 'sha256:abcd' }, 'image_not_pinned', /sha256/],
    ['privileged', extra({ privileged: true }), 'spec_refused', /"privileged"/],
    ['host pid namespace', extra({ pidMode: 'host' }), 'spec_refused', /"pidMode"/],
    ['host network', extra({ networkMode: 'host' }), 'spec_refused', /"networkMode"/],
    ['devices', extra({ devices: ['/dev/kvm'] }), 'spec_refused', /"devices"/],
    ['it undoes the network', { capabilities: ['NET_ADMIN'] }, 'spec_refused', /NET_ADMIN/],
    ['it forges packets', { capabilities: ['NET_RAW'] }, 'spec_refused', /NET_RAW/],
    ['it is root on the host', { capabilities: ['SYS_ADMIN'] }, 'spec_refused', /SYS_ADMIN/],
    ['all at once', { capabilities: ['ALL'] }, 'spec_refused', /ALL/],
    ['an engine socket', mount('/srv/bundles/docker.sock'), 'spec_refused', /engine's socket/],
    [
      'another engine socket',
      mount('/srv/bundles/containerd.sock'),
      'spec_refused',
      /engine's socket/,
    ],
    ['outside the roots', mount('/home/user/x'), 'spec_refused', /outside/],
    [
      'a sibling with the same prefix',
      mount('/srv/bundles-of-others/x'),
      'spec_refused',
      /outside/,
    ],
    ['a step up', mount('/srv/bundles/../../etc'), 'spec_refused', /absolute path/],
    ['relative', mount('bundles/x'), 'spec_refused', /absolute path/],
    ['the whole host', { ...mount('/etc/shadow'), mountRoots: ['/'] }, 'spec_refused', /outside/],
    [
      'the host devices',
      { ...mount('/dev/kvm'), mountRoots: ['/dev'] },
      'spec_refused',
      /host's \/dev/,
    ],
    ['over our own files', mount('/srv/bundles/a', '/.closedbook/init'), 'spec_refused', /taken/],
    ['over proc', mount('/srv/bundles/a', '/proc/sys'), 'spec_refused', /taken/],
    ['over everything', mount('/srv/bundles/a', '/'), 'spec_refused', /can't go/],
    [
      'one target for two',
      {
        readOnlyMounts: [
          { source: '/srv/bundles/a', target: '/t' },
          { source: '/srv/bundles/b', target: '/t' },
        ],
      },
      'spec_refused',
      /Two mounts/,
    ],
    ['a name with a slash', { name: 'a/b' }, 'spec_refused', /name/],
    ['a host name with a space', { hostname: 'a b' }, 'spec_refused', /host name/],
    ['a host name for extra hosts', { hostname: 'a:1.2.3.4' }, 'spec_refused', /host name/],
    ['an environment that splits', { env: { 'A=B': 'c' } }, 'spec_refused', /A=B/],
    ['an init by search path', { initPath: 'catatonit' }, 'spec_refused', /absolute/],
  ]
  for (const [why, overrides, code, says] of table) {
    const seen = refusal(() => toCreateOptions(specOf(overrides), engine))
    t.equal(seen.code, code, why)
    t.match(seen.message, says, why)
  }
  t.match(
    refusal(() => toCreateOptions(specOf(), { ...engine, runtimes: ['runsc'] })),
    {
      code: 'spec_refused',
      message: /runsc/,
    },
  )
  t.match(
    refusal(() => toCreateOptions(specOf(), { ...engine, architecture: 'riscv64' })),
    {
      code: 'spec_refused',
      message: /riscv64/,
    },
  )
})

t.test('the spec itself is accepted, by digest as by id', async (t) => {
  t.equal(refusal(() => toCreateOptions(specOf(), engine)).code, 'accepted')
  const image = `registry.example/team/task@sha256:${'0'.repeat(64)}`
  t.equal(refusal(() => toCreateOptions(specOf({ image }), engine)).code, 'accepted')
})

t.test('a mount source is judged by what it is on the disk', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'cb-spec-'))
  t.teardown(() => rm(root, { recursive: true }))
  const bundles = join(root, 'bundles')
  await mkdir(join(bundles, 'good'), { recursive: true })
  await symlink('/etc', join(bundles, 'link'))
  await symlink(join(bundles, 'good'), join(bundles, 'inner'))
  const server = createServer().listen(join(bundles, 'some.sock'))
  await once(server, 'listening')
  t.teardown(() => server.close())
  const check = (name: string): Promise<void> =>
    checkMountSources(
      specOf({
        readOnlyMounts: [{ source: join(bundles, name), target: '/t' }],
        mountRoots: [bundles],
      }),
    )
  await t.resolves(check('good'))
  await t.resolves(check('inner'), 'a link that stays inside')
  await t.rejects(check('link'), { code: 'spec_refused', message: /outside/ })
  await t.rejects(check('absent'), { code: 'spec_refused', message: /does not exist/ })
  await t.rejects(check('some.sock'), { code: 'spec_refused', message: /neither a file/ })
})

t.test('the profile allows only what its families say, whatever the capabilities', async (t) => {
  const profile = seccompProfile('x86_64', ['SYS_PTRACE'])
  const allowedNames = new Set(
    profile?.syscalls
      .filter(({ action }) => action === 'SCMP_ACT_ALLOW')
      .flatMap(({ names }) => names),
  )
  for (const name of [
    'io_uring_setup',
    'io_uring_enter',
    'io_uring_register',
    'socketcall',
    'bpf',
    'mount',
    'setns',
    'unshare',
    'keyctl',
    'perf_event_open',
    'open_by_handle_at',
    'userfaultfd',
    'chroot',
    'clone3',
  ])
    t.notOk(allowedNames.has(name), name)
  t.strictSame(
    profile?.syscalls
      .filter(({ names }) => names.includes('socket'))
      .map(({ args }) => args?.map(({ index, value, op }) => [index, value, op])),
    [
      [[0, 1, 'SCMP_CMP_EQ']],
      [[0, 2, 'SCMP_CMP_EQ']],
      [[0, 10, 'SCMP_CMP_EQ']],
      [
        [0, 16, 'SCMP_CMP_EQ'],
        [2, 0, 'SCMP_CMP_EQ'],
      ],
    ],
  )
  t.strictSame(profile?.architectures, ['SCMP_ARCH_X86_64'], 'no 32-bit entry')
  t.equal(
    new Set(profile?.syscalls[0]?.names).size,
    profile?.syscalls[0]?.names.length,
    'no name twice',
  )
})
