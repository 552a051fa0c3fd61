/** What an agent does to its sandbox stays in it: it can't outgrow its limits, outlive its freeze or end PID 1. */
import t from 'tap'
import { Cgroup } from '../../../daemon/engine/cgroup.ts'
import { SandboxWorld, until } from './setup.ts'

const mebibyte = 1024 ** 2
const world = await SandboxWorld.open()
t.teardown(() => world[Symbol.asyncDispose]())
const { client } = world.daemon

void t.test(
  'a writer that passes the disk limit is ended, in the foreground and behind one',
  async (t) => {
    const lease = await world.lease({ resources: { diskBytes: 30 * mebibyte } })
    const fill =
      'n=0; while n=$((n+1)); do head -c 1000000 /dev/zero > /var/tmp/$n || exit 1; sleep 0.01; done'
    const { end } = await world.run(lease, ['sh', '-c', fill], { timeoutMs: 30_000 })
    t.match(end, { exit: { signal: 'SIGKILL' }, cause: 'exited' })
    t.ok(end.durationMs < 20_000, 'long before its time is over')
    await world.run(lease, ['sh', '-c', 'rm -rf /var/tmp/*'])
    await world.run(lease, ['sh', '-c', `setsid sh -c '${fill}' >/dev/null 2>&1 </dev/null &`])
    // Seen from the host: a look by a command would itself be something that runs.
    const cgroup = Cgroup.ofPid(await world.pidOf(lease))
    t.ok(cgroup.pids().length > 1, 'it writes')
    await until('the one behind is ended too', () => cgroup.pids().length === 1)
    const report = await client.freeze(lease)
    t.ok(report.diskLimitHit)
    t.ok((report.diskUsedBytes ?? 0) > 30 * mebibyte)
    t.ok((report.diskUsedBytes ?? Infinity) < 2000 * mebibyte)
    await client.closeLease(lease, 'done')
  },
)

void t.test('memory beyond the limit ends the hog, and the report says so', async (t) => {
  const lease = await world.lease({ resources: { memoryBytes: 64 * mebibyte } })
  const pid = await world.pidOf(lease)
  const { end } = await world.run(lease, [
    'python3',
    '-c',
    'x = [bytearray(1 << 20) for _ in range(1000)]',
  ])
  t.match(end.exit, { signal: 'SIGKILL' })
  // Memory that belongs to no process: whoever is ended for it, PID 1 must not be.
  const hoard = `
import os
fd = os.memfd_create('hoard')
try:
    while True: os.write(fd, bytes(1 << 20))
except (MemoryError, OSError): pass
`
  await world.run(lease, ['python3', '-c', hoard], { timeoutMs: 10_000 })
  await world.run(lease, ['dd', 'if=/dev/zero', 'of=/dev/shm/x', 'bs=1M', 'count=500'], {
    timeoutMs: 10_000,
  })
  const report = await client.freeze(lease)
  t.ok(report.oomKills >= 1)
  t.equal(await world.pidOf(lease), pid, 'PID 1 lives')
  t.ok((report.memoryPeakBytes ?? 0) > 60 * mebibyte)
  t.ok((report.memoryPeakBytes ?? Infinity) <= 65 * mebibyte)
  await client.closeLease(lease, 'done')
})

void t.test('a fork storm is frozen, and the lease beside it does not feel it', async (t) => {
  const lease = await world.lease({ resources: { pids: 200, cpus: 1 } })
  const beside = await world.lease()
  const storm = `
import os, signal
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
`
  await world.run(lease, ['sh', '-c', 'setsid python3 -c "$0" >/dev/null 2>&1 </dev/null &', storm])
  const cgroup = Cgroup.ofPid(await world.pidOf(lease))
  await until('it rages', () => cgroup.stats().pidsLimitHits > 0, 60_000)
  t.match((await world.run(beside, ['echo', 'calm'])).output, 'calm')
  const started = performance.now()
  const report = await client.freeze(lease)
  t.ok(report.empty)
  t.ok(report.pidsLimitHits > 0)
  t.ok(report.killed >= 100, `${report.killed} were killed`)
  t.ok(performance.now() - started < 20_000)
  const proof = await client.prove(lease)
  t.ok(proof.ok, 'and it can still be proven')
  for (const id of [lease, beside]) await client.closeLease(id, 'done')
})

void t.test(
  'root in the sandbox can neither end, trace, write to nor sacrifice PID 1',
  async (t) => {
    const lease = await world.lease({ resources: { memoryBytes: 128 * mebibyte } })
    const outcome = await world.python(
      lease,
      `
import ctypes, errno, json, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def ptrace(request, options):
    return errno.errorcode[ctypes.get_errno()] if libc.ptrace(request, 1, None, ctypes.c_void_p(options)) < 0 else 'ok'
def attempt(what):
    try: what(); return 'ok'
    except OSError as error: return errno.errorcode[error.errno]
EXITKILL = 0x100000
print(json.dumps({
  'signals': sorted({attempt(lambda: os.kill(1, s)) for s in range(1, 65)}),
  'pidfd': attempt(lambda: __import__('signal').pidfd_send_signal(os.pidfd_open(1), 9)),
  'seize': ptrace(0x4206, EXITKILL), 'attach': ptrace(16, 0),
  'memory': attempt(lambda: open('/proc/1/mem', 'r+b')),
  'oom': attempt(lambda: open('/proc/1/oom_score_adj', 'w')),
  'limits': attempt(lambda: resource.prlimit(1, resource.RLIMIT_AS, (1, 1))),
  'files': attempt(lambda: os.listdir('/proc/1/fd')),
}))
`,
    )
    t.strictSame(outcome, {
      signals: ['EPERM'],
      pidfd: 'EPERM',
      seize: 'EPERM',
      attach: 'EPERM',
      memory: 'EACCES',
      oom: 'EACCES',
      limits: 'EPERM',
      files: 'EACCES',
    })
    await world.run(lease, ['sh', '-c', 'kill -9 -1; kill -15 -1']).catch(() => {})
    const { output } = await world.run(lease, [
      'sh',
      '-c',
      'tr "\\0" " " < /proc/1/cmdline; id -un',
    ])
    t.match(output, /^\/\.closedbook\/init -P root/, 'PID 1 is who it was')
    t.match(await client.freeze(lease), { empty: true })
    await client.closeLease(lease, 'done')
  },
)

void t.test(
  'all that is ours in the sandbox is read-only and tells nothing of the task',
  async (t) => {
    const lease = await world.lease({ trial: 'tally.oracle.1', owner: 'a-secret-owner' })
    const { output } = await world.run(lease, [
      'sh',
      '-c',
      'for f in /.closedbook/init /.closedbook/busybox; do echo x >> $f || mv $f /tmp/ || rm $f; done 2>&1; hostname; env; cat /proc/self/mountinfo /proc/self/cgroup; ls /sys/class/net',
    ])
    t.match(output, /Read-only file system|Permission denied|busy/)
    t.notMatch(output, /tally|secret-owner/)
    t.match(output, /\nlo\n?$/)
    t.match((await client.prove(lease)).ok, true)
    await client.closeLease(lease, 'done')
  },
)
