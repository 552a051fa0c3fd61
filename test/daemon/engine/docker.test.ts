/** Against a real engine: that what a spec says is what the kernel applies, and that failures have their names. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, rmdir, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { extract, pack } from 'tar-stream'
import type { Header } from 'tar-stream'
import t from 'tap'
import { Cgroup, isLive } from '../../../daemon/engine/cgroup.ts'
import { DockerEngine } from '../../../daemon/engine/docker.ts'
import { resourcesSchema } from '../../../daemon/protocol/lease.ts'
import type { Exit } from '../../../daemon/protocol/exec-frames.ts'
import { testEngine } from '../../support/engine.ts'
import type { TestContainer } from '../../support/engine.ts'
import { syscallProbe } from '../../support/syscall-probe.ts'
import type { Entry } from '../../support/syscall-probe.ts'

const { engine, container, spec, baseImage, dispose } = await testEngine()
t.teardown(dispose)

function tarOf(files: readonly (Partial<Header> & { name: string; content?: Buffer })[]): Readable {
  const tar = pack()
  for (const { content, ...header } of files) tar.entry(header, content ?? Buffer.alloc(0))
  tar.finalize()
  return Readable.from(tar as AsyncIterable<Buffer>)
}

async function until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 20_000
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

async function put(into: TestContainer, name: string, content: Buffer): Promise<void> {
  await engine.writeArchive(into.id, '/tmp', tarOf([{ name, mode: 0o755, content }]))
}

t.test('the kernel applies what the spec says', async (t) => {
  await using box = await container({
    capabilities: ['CHOWN', 'SETUID'],
    resources: resourcesSchema.parse({ pids: 50, memoryBytes: 128 * 1024 ** 2, cpus: 0.5 }),
  })
  const { stdout } = await box.run(['cat', '/proc/self/status'])
  const capabilities = (1 << 0) | (1 << 7)
  for (const set of ['CapEff', 'CapPrm', 'CapBnd'])
    t.match(stdout, new RegExp(`${set}:\\s*${capabilities.toString(16).padStart(16, '0')}`), set)
  t.match(stdout, /NoNewPrivs:\s*1/)
  t.match(stdout, /Seccomp:\s*2/)
  t.equal((await box.run(['cat', '/proc/1/cmdline'])).stdout, '/.closedbook/init\0-P\0')
  t.equal((await box.run(['ls', '/sys/class/net'])).stdout, 'lo\n')
  t.match((await box.run(['cat', '/etc/resolv.conf'])).stdout, /^nameserver 127\.0\.0\.1$/m)
  t.match((await box.run(['cat', '/etc/hosts'])).stdout, /^127\.0\.0\.1\s+sandbox$/m)
  t.equal((await box.run(['hostname'])).stdout, 'sandbox\n')
  t.match((await box.run(['env'])).stdout, /^NVIDIA_VISIBLE_DEVICES=void$/m)
  t.notSame((await box.run(['sh', '-c', 'echo x > /.closedbook/init'])).end.exit, { code: 0 })
  t.notSame((await box.run(['mount', '-t', 'tmpfs', 'x', '/work'])).end.exit, { code: 0 })
  t.notSame((await box.run(['mknod', '/tmp/sda', 'b', '8', '0'])).end.exit, { code: 0 })
  t.match((await box.run(['df', '/dev/shm'])).stdout, /65536/)
  t.equal((await box.run(['sh', '-c', 'ulimit -c'])).stdout, '0\n')
})

t.test('the filter refuses the ways round the network and out of the sandbox', async (t) => {
  await using box = await container()
  const EPERM = { code: 1 }
  const ok = { code: 0 }
  const table: [what: string, number: number, args: number[], exit: Exit, entry?: Entry][] = [
    ['a TCP socket works', 41, [2, 1, 0], ok],
    ['a UDP socket works', 41, [2, 2, 0], ok],
    ['a unix socket works', 41, [1, 1, 0], ok],
    ['route netlink works, programs list addresses by it', 41, [16, 3, 0], ok],
    ['AF_VSOCK reaches the hypervisor', 41, [40, 1, 0], EPERM],
    ['AF_PACKET', 41, [17, 3, 0x300], EPERM],
    ['AF_ALG is kernel surface for nothing', 41, [38, 5, 0], EPERM],
    ['AF_BLUETOOTH', 41, [31, 3, 1], EPERM],
    ['AF_XDP', 41, [44, 3, 0], EPERM],
    ['netlink to netfilter', 41, [16, 3, 12], EPERM],
    ['netlink to audit', 41, [16, 3, 9], EPERM],
    ['a raw IP socket', 41, [2, 3, 1], EPERM],
    ['io_uring opens sockets past any filter', 425, [8, 0], EPERM],
    ['a user namespace gives capabilities back', 272, [0x10000000], EPERM],
    ['a network namespace', 272, [0x40000000], EPERM],
    ['clone with a user namespace', 56, [0x10000000 | 17, 0], EPERM],
    ['clone3 is absent, so that C libraries fall back', 435, [0, 0], { code: 38 }],
    ['bpf', 321, [0, 0, 0], EPERM],
    ['keyctl', 250, [0, 0, 0], EPERM],
    ['mount', 165, [0, 0, 0, 0], EPERM],
    [
      'the 32-bit entry hides arguments, so it ends the program',
      102,
      [1, 0],
      { signal: 'SIGSYS' },
      'int80',
    ],
  ]
  for (const [what, number, args, exit, entry] of table) {
    await put(box, 'probe', syscallProbe(number, args, entry))
    t.strictSame((await box.run(['/tmp/probe'])).end.exit, exit, what)
  }
})

t.test('a GPU variable of the image gives nothing, and its entrypoint does not run', async (t) => {
  const tag = `closedbook-test/loud:${crypto.randomUUID()}`
  const made = await engine.buildImage({
    context: tarOf([
      {
        name: 'Dockerfile',
        content: Buffer.from(
          `FROM ${await baseImage()}\nENV NVIDIA_VISIBLE_DEVICES=all\nENTRYPOINT ["sh","-c","touch /ran; sleep 60"]\nHEALTHCHECK CMD touch /checked\nWORKDIR /work\nUSER agent\n`,
        ),
      },
    ]),
    tag,
    labels: { 'closedbook.test': '1' },
    network: 'none',
  })
  t.teardown(() => engine.removeImage(tag))
  t.match(made, { workdir: '/work', user: 'agent', labels: { 'closedbook.test': '1' } })
  await using box = await container({ image: made.id })
  t.match((await box.run(['env'])).stdout, /^NVIDIA_VISIBLE_DEVICES=void$/m)
  t.match((await box.run(['ls', '/'])).stdout, /^((?!ran|checked).)*$/s)
  t.equal((await box.run(['id', '-u'])).stdout, '1000\n', 'the image’s own user stays the default')
})

t.test('images: what is absent, broken or unpinned says so', async (t) => {
  await t.rejects(engine.inspectImage('closedbook-test/absent:1'), {
    code: 'image_missing',
    blame: 'operator',
  })
  await t.resolves(engine.removeImage('closedbook-test/absent:1'), 'already gone is fine')
  const build = (dockerfile: string): Promise<unknown> =>
    engine.buildImage({
      context: tarOf([{ name: 'Dockerfile', content: Buffer.from(dockerfile) }]),
      tag: 'closedbook-test/broken:1',
      network: 'none',
    })
  const from = `FROM ${await baseImage()}\n`
  await t.rejects(build(`${from}RUN echo the reason; false\n`), {
    code: 'image_build_failed',
    message: /the reason/,
  })
  await t.rejects(build('NONSENSE\n'), { name: 'EngineError' })
  await t.rejects(engine.createContainer(await spec({ image: `sha256:${'0'.repeat(64)}` })), {
    code: 'image_missing',
  })
  await t.rejects(engine.createContainer(await spec({ image: 'closedbook-test/x:1' })), {
    code: 'image_not_pinned',
  })
})

t.test('removal is at once, verified, and fine to repeat', async (t) => {
  const box = await container()
  const began = performance.now()
  await Promise.all([engine.removeContainer(box.id), engine.removeContainer(box.id)])
  t.ok(performance.now() - began < 5_000, 'no grace period')
  t.notOk(isLive(box.pid))
  await t.resolves(engine.removeContainer(box.id))
  await t.rejects(engine.inspectContainer(box.id), { code: 'container_gone' })
  await t.rejects(engine.startContainer(box.id), { code: 'container_gone' })
  await t.rejects(box.run(['true']), { code: 'container_gone' })
  await t.rejects(engine.readArchive(box.id, '/etc'), { code: 'container_gone' })
})

t.test('containers are found by all of their labels, running or not', async (t) => {
  const mine = crypto.randomUUID()
  const { id } = await engine.createContainer(await spec({ labels: { mine, lease: 'a' } }))
  t.teardown(() => engine.removeContainer(id))
  await using box = await container({ labels: { mine, lease: 'b' } })
  const ids = async (labels: Record<string, string>): Promise<string[]> =>
    (await engine.listContainers(labels)).map((each) => each.id).sort()
  t.strictSame(await ids({ mine }), [id, box.id].sort())
  t.strictSame(await ids({ mine, lease: 'b' }), [box.id])
  t.strictSame(await ids({ mine, lease: 'c' }), [])
  const [state] = await engine.listContainers({ mine, lease: 'b' })
  t.match(state, {
    status: 'running',
    pid: box.pid,
    labels: { mine, lease: 'b' },
    image: await baseImage(),
  })
})

t.test('archives go in and out, with the kind of the path', async (t) => {
  await using box = await container()
  await engine.writeArchive(
    box.id,
    '/work',
    tarOf([
      { name: 'dir', type: 'directory' },
      { name: 'dir/file', content: Buffer.from('text') },
      { name: 'link', type: 'symlink', linkname: 'dir/file' },
    ]),
  )
  await box.run(['mkfifo', '/work/pipe'])
  const names: string[] = []
  const { stat: facts, tar } = await engine.readArchive(box.id, '/work/dir')
  t.match(facts, { name: 'dir', kind: 'directory' })
  const entries = extract()
  entries.on('entry', (header, stream, next) => {
    names.push(header.name)
    stream.on('end', next).resume()
  })
  tar.pipe(entries)
  await once(entries, 'finish')
  t.strictSame(names, ['dir/', 'dir/file'])
  for (const [path, kind] of [
    ['/work/dir/file', 'file'],
    ['/work/link', 'symlink'],
    ['/work/pipe', 'other'],
  ] as const) {
    const read = await engine.readArchive(box.id, path)
    t.equal(read.stat.kind, kind, path)
    await buffer(read.tar)
  }
  const link = await engine.readArchive(box.id, '/work/link')
  t.equal(link.stat.linkTarget, '/work/dir/file')
  link.tar.destroy()
  await t.rejects(engine.readArchive(box.id, '/work/none'), { code: 'path_missing' })
  await t.rejects(engine.writeArchive(box.id, '/none', tarOf([])), { code: 'path_missing' })
})

t.test('a bundle is seen read-only, and what the sandbox writes shows on the host', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'cb-mount-'))
  t.teardown(() => rm(root, { recursive: true }))
  await mkdir(join(root, 'bundle'))
  await writeFile(join(root, 'bundle', 'hidden'), 'tests')
  await using box = await container({
    mountRoots: [root],
    readOnlyMounts: [{ source: join(root, 'bundle'), target: '/tests' }],
    scratchMounts: [{ target: '/scratch', sizeBytes: 1024 * 1024 }],
  })
  t.equal((await box.run(['cat', '/tests/hidden'])).stdout, 'tests')
  t.match((await box.run(['touch', '/tests/new'])).stderr, /Read-only/)
  const over = await box.run(['sh', '-c', 'head -c 2000000 /dev/zero > /scratch/x'])
  t.notSame(over.end.exit, { code: 0 })
  t.equal((await box.run(['wc', '-c', '/scratch/x'])).stdout, '1048576 /scratch/x\n')
  await box.run(['sh', '-c', 'echo mine > /work/file'])
  if (box.upperDir === null) t.comment('this storage driver has no upper directory')
  else t.ok((await stat(join(box.upperDir, 'work/file'))).isFile())
})

t.test('an engine that is not there is unreachable, with what to do', async (t) => {
  await t.rejects(DockerEngine.connect({ socketPath: '/nonexistent/docker.sock' }), {
    code: 'engine_unreachable',
    blame: 'infra',
    message: /closedbook up/,
  })
})

t.test('an abort ends the wait with the caller’s own reason', async (t) => {
  const reason = new Error('enough')
  const signal = AbortSignal.abort(reason)
  await t.rejects(engine.info({ signal }), reason)
  await t.rejects(engine.createContainer(await spec(), { signal }), reason)
})

t.test('freezing ends a fork storm and leaves PID 1 and its network', async (t) => {
  await using box = await container({ resources: resourcesSchema.parse({ pids: 200 }) })
  // The storm itself may blow over at its limit; the sleepers don't.
  const sleepers = 'for i in $(seq 20); do sleep 1000 & done'
  const storm = box.run(['sh', '-c', `${sleepers}; f() { f | f & f; }; f`], {
    start: { outputLimitBytes: 1000 },
  })
  await until('the storm is at its limit', () => box.cgroup.stats().pidsLimitHits > 50)
  const report = await box.cgroup.killAllBut(box.pid, { deadlineMs: 20_000 })
  t.ok(report.empty)
  t.ok(report.killed > 10, `killed ${report.killed} in ${report.rounds} rounds`)
  t.strictSame(box.cgroup.pids().filter(isLive), [box.pid])
  t.match((await storm).end, { cause: 'exited' })
  t.match((await box.run(['echo', 'alive'])).stdout, /alive/)
  const again = await box.cgroup.killAllBut(box.pid, { deadlineMs: 5_000 })
  t.match(again, { killed: 0, rounds: 0, empty: true })
})

t.test('limits that were hit can be read before the end', async (t) => {
  await using box = await container({
    resources: resourcesSchema.parse({ memoryBytes: 32 * 1024 ** 2 }),
  })
  t.match(box.cgroup.stats(), { oomKills: 0, pidsLimitHits: 0 })
  const { end } = await box.run(['sh', '-c', 'tail /dev/zero'])
  t.notSame(end.exit, { code: 0 })
  const stats = box.cgroup.stats()
  t.ok(stats.oomKills > 0)
  t.ok((stats.memoryPeakBytes ?? 0) > 16 * 1024 ** 2)
  t.ok((stats.cpuMs ?? 0) > 0)
})

t.test('the same works on cgroup v2', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'cb-cgroup2-'))
  const mounted = spawn('mount', ['-t', 'cgroup2', 'none', root])
  t.equal((await once(mounted, 'exit'))[0], 0)
  const group = join(root, `cb-${crypto.randomUUID()}`)
  await mkdir(group)
  const child = spawn('sh', ['-c', 'read go; while :; do sleep 100 & sleep 100 & wait; done'])
  const pid = child.pid ?? 0
  await writeFile(join(group, 'cgroup.procs'), String(pid))
  const cgroup = Cgroup.ofPid(pid)
  t.teardown(async () => {
    await cgroup.killAllBut(0, { deadlineMs: 5_000 })
    await until('the group can go', () =>
      rmdir(group).then(
        () => true,
        () => false,
      ),
    )
    await once(spawn('umount', [root]), 'exit')
    await rmdir(root)
  })
  t.equal(cgroup.version, 2)
  child.stdin.write('go\n')
  await until('the children run', () => cgroup.pids().length === 3)
  t.equal(await cgroup.freeze(), true)
  t.match(await readFile(join(group, 'cgroup.events'), 'utf8'), /frozen 1/)
  t.equal(await cgroup.thaw(), true)
  const report = await cgroup.killAllBut(pid, { deadlineMs: 1 })
  t.ok(report.killed >= 2)
  t.equal(report.empty, false, 'what could not be seen empty twice in time is not said to be')
  t.ok(isLive(pid))
})

t.test('the cgroup of the host itself is refused', async (t) => {
  t.throws(() => Cgroup.ofPid(2), { code: 'freeze_failed' })
})
