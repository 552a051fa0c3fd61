/** Execs in a real container: that what is told about a command is what happened to it. */
import { Readable } from 'node:stream'
import t from 'tap'
import { isLive } from '../../../daemon/engine/cgroup.ts'
import { DockerEngine } from '../../../daemon/engine/docker.ts'
import { runExec } from '../../../daemon/exec/exec.ts'
import { execStartSchema } from '../../../daemon/protocol/exec-frames.ts'
import type { ExecStartInput } from '../../../daemon/protocol/exec-frames.ts'
import { cuttingProxy } from '../../support/cutting-proxy.ts'
import type { CuttingProxy } from '../../support/cutting-proxy.ts'
import { testEngine } from '../../support/engine.ts'
import type { TestContainer } from '../../support/engine.ts'

const { engine, socketPath, container, dispose } = await testEngine()
t.teardown(dispose)

async function until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 20_000
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

const others = (box: TestContainer): number[] =>
  box.cgroup.pids().filter((pid) => pid !== box.pid && isLive(pid))

t.test('exit, output and cause of what ends by itself', async (t) => {
  await using box = await container()
  const table: [script: string, exit: object, stdout: string, stderr?: string][] = [
    ['exit 0', { code: 0 }, ''],
    ['echo out; echo err >&2; exit 3', { code: 3 }, 'out\n', 'err\n'],
    ['exit 126', { code: 126 }, ''],
    ['nosuchcommand', { code: 127 }, '', 'sh: nosuchcommand: not found\n'],
    ['exit 255', { code: 255 }, ''],
    ['kill -9 $$', { signal: 'SIGKILL' }, ''],
    ['kill -TERM $$', { signal: 'SIGTERM' }, ''],
    ['kill -SEGV $$', { signal: 'SIGSEGV' }, ''],
    ['printf "no newline"', { code: 0 }, 'no newline'],
    ['printf "like the engine\\r\\n"', { code: 0 }, 'like the engine\r\n'],
    ['exec >&- 2>&-; sleep 0.3; exit 5', { code: 5 }, ''],
    ['cat', { code: 0 }, ''],
  ]
  for (const [script, exit, stdout, stderr = ''] of table) {
    const seen = await box.run(['sh', '-c', script])
    t.strictSame(seen.end.exit, exit, script)
    t.equal(seen.stdout, stdout, script)
    t.equal(seen.stderr, stderr, script)
    t.match(seen.end, { cause: 'exited', childrenLeft: false }, script)
  }
})

t.test('a command that cannot start is an error, and not output of the command', async (t) => {
  await using box = await container()
  const table: [why: string, argv: string[], start: Partial<ExecStartInput>, says: RegExp][] = [
    ['no such program', ['nosuch'], {}, /nosuch/],
    ['not executable', ['/etc/passwd'], {}, /permission denied/i],
    ['no such directory', ['true'], { workdir: '/nowhere' }, /nowhere/],
    ['no such user', ['true'], { user: 'nobodyhere' }, /nobodyhere/],
  ]
  for (const [why, argv, start, says] of table) {
    const output: string[] = []
    const run = box.run(argv, {
      start,
      onOutput: (_stream, _offset, bytes) => void output.push(bytes.toString()),
    })
    await t.rejects(run, { code: 'exec_not_started', message: says }, why)
    t.strictSame(output, [], why)
  }
})

t.test('user, directory and environment are as asked', async (t) => {
  await using box = await container()
  const { stdout } = await box.run(['sh', '-c', 'id -u; pwd; echo "$GREETING"'], {
    start: { user: 'agent', workdir: '/work', env: { GREETING: 'hello = world' } },
  })
  t.equal(stdout, '1000\n/work\nhello = world\n')
})

t.test('input arrives whole, and its end is seen', async (t) => {
  await using box = await container()
  const stdin = (bytes: number): Readable => Readable.from([Buffer.alloc(bytes, 'x')])
  t.equal((await box.run(['wc', '-c'], { stdin: stdin(100 * 1024) })).stdout, '102400\n')
  t.equal((await box.run(['wc', '-c'], { stdin: stdin(0) })).stdout, '0\n')
  const echoed = await box.run(['cat'], {
    stdin: stdin(3_000_000),
    start: { outputLimitBytes: 10 },
  })
  t.equal(echoed.end.stdout.totalBytes, 3_000_000)
})

t.test('a command that stops reading its input loses none of its output', async (t) => {
  await using box = await container()
  async function* endless(): AsyncGenerator<Buffer> {
    for (;;) yield Buffer.alloc(65_536, 'x')
  }
  for (let round = 0; round < 20; round += 1) {
    const { end } = await box.run(['head', '-c', '300000'], { stdin: Readable.from(endless()) })
    t.match(end, { exit: { code: 0 }, stdout: { totalBytes: 300_000 } })
  }
})

t.test('two hundred short commands, none cut short', async (t) => {
  await using box = await container()
  const lines = Array.from({ length: 3000 }, (_, at) => `${at + 1}\n`).join('')
  let bad = 0
  const worker = async (): Promise<void> => {
    for (let round = 0; round < 50; round += 1) {
      const { end, stdout } = await box.run(['seq', '1', '3000'])
      if (stdout !== lines || end.exit === 'unknown' || !('code' in end.exit)) bad += 1
    }
  }
  await Promise.all([worker(), worker(), worker(), worker()])
  t.equal(bad, 0)
})

t.test('the limit keeps the first and the last half and counts everything', async (t) => {
  await using box = await container()
  const offsets: [number, number][] = []
  const { end, stdout } = await box.run(['seq', '1', '200000'], {
    start: { outputLimitBytes: 100 },
    onOutput: (_stream, offset, bytes) => void offsets.push([offset, bytes.length]),
  })
  const whole = Array.from({ length: 200_000 }, (_, at) => `${at + 1}\n`).join('')
  t.equal(stdout, whole.slice(0, 50) + whole.slice(-50))
  t.strictSame(offsets, [
    [0, 50],
    [whole.length - 50, 50],
  ])
  t.strictSame(end.stdout, { totalBytes: whole.length, droppedBytes: whole.length - 100 })
})

t.test('merged output keeps the order in which it was written', async (t) => {
  await using box = await container()
  const { stdout, stderr, end } = await box.run(
    ['sh', '-c', 'for i in 1 2 3; do echo o$i; sleep 0.05; echo e$i >&2; sleep 0.05; done'],
    { start: { merged: true } },
  )
  t.equal(stdout, 'o1\ne1\no2\ne2\no3\ne3\n')
  t.equal(stderr, '')
  t.match(end, { stdout: { totalBytes: 18 }, stderr: { totalBytes: 0 } })
})

t.test('output that is not taken makes the command wait, and none is lost', async (t) => {
  await using box = await container()
  const gate = Promise.withResolvers<void>()
  let first = true
  const running = box.run(['sh', '-c', 'seq 1 1000000; touch /work/done'], {
    onOutput: () => {
      if (!first) return undefined
      first = false
      return gate.promise
    },
  })
  await until('it has begun', () => !first)
  t.notSame((await box.run(['sleep', '0.5'])).end.exit, 'unknown')
  t.notSame((await box.run(['test', '-e', '/work/done'])).end.exit, { code: 0 }, 'still waiting')
  gate.resolve()
  const { end } = await running
  t.match(end, { exit: { code: 0 }, stdout: { totalBytes: 6_888_896, droppedBytes: 0 } })
})

t.test('a child left in the background does not hold up the end', async (t) => {
  await using box = await container()
  const began = performance.now()
  const { end, stdout } = await box.run(['bash', '-lc', 'sleep 60 & echo started'])
  t.ok(performance.now() - began < 3_000, 'within 3 s')
  t.equal(stdout, 'started\n')
  t.match(end, { exit: { code: 0 }, cause: 'exited', childrenLeft: true })
  t.equal(others(box).length, 1, 'and the child goes on')
})

t.test('a timeout ends the whole tree, however it hides', async (t) => {
  const table: [how: string, script: string][] = [
    ['a plain child', 'sleep 77 & sleep 78'],
    ['a new session', 'setsid sleep 77 & sleep 78'],
    ['a double fork', '(sleep 77 &) ; sleep 78'],
    [
      'an ignored signal',
      'trap "" TERM INT HUP; setsid sh -c "trap \\"\\" TERM; sleep 77" & sleep 78',
    ],
    ['an empty environment', 'env -i sleep 77 & sleep 78'],
    ['an empty environment, orphaned in a new session', '(env -i setsid sleep 77 &) ; sleep 78'],
    ['the first process empties its own', 'exec env -i sh -c "sleep 77 & sleep 78"'],
    ['a fork storm', 'f() { f | f & f; }; (f &); sleep 78'],
  ]
  for (const [how, script] of table) {
    await using box = await container({
      resources: { cpus: 1, memoryBytes: 256 * 1024 ** 2, pids: 100, shmBytes: 0 },
    })
    const { end } = await box.run(['sh', '-c', script], { start: { timeoutMs: 400 } })
    t.equal(end.cause, 'timeout', how)
    t.notOk(end.childrenLeft, how)
    t.strictSame(others(box), [], how)
  }
})

t.test('a timeout of one command leaves the others alone', async (t) => {
  await using box = await container()
  const server = box.run(['sh', '-c', '(sleep 61 &); (env -i sleep 62 &); sleep 63; true'])
  await until('the server runs', () => others(box).length >= 3)
  const { end } = await box.run(['sh', '-c', '(sleep 77 &) ; sleep 78'], {
    start: { timeoutMs: 300 },
  })
  t.equal(end.cause, 'timeout')
  t.equal(others(box).length, 4, 'sh and three sleeps of the other one')
  await box.cgroup.killAllBut(box.pid, { deadlineMs: 5_000 })
  t.match((await server).end, { exit: { signal: 'SIGKILL' }, cause: 'exited' })
})

t.test('killed and disconnected are told apart, and end the tree', async (t) => {
  await using box = await container()
  for (const [reason, cause] of [
    ['killed', 'killed'],
    ['disconnected', 'disconnected'],
  ] as const) {
    const stop = new AbortController()
    const running = box.run(['sh', '-c', '(setsid sleep 77 &); echo up; sleep 78'], {
      signal: stop.signal,
      onOutput: () => stop.abort(reason),
    })
    t.match((await running).end, { exit: { signal: 'SIGKILL' }, cause, childrenLeft: false })
    t.strictSame(others(box), [], reason)
  }
  const early = await box.run(['sleep', '78'], { signal: AbortSignal.abort('killed') })
  t.match(early.end, { cause: 'killed' }, 'a signal that came before the start')
  t.strictSame(others(box), [])
})

t.test('a container that is removed ends its commands as such', async (t) => {
  const box = await container()
  const running = box.run(['sh', '-c', 'echo up; sleep 78'], {
    onOutput: () => void engine.removeContainer(box.id),
  })
  t.match(await running, { stdout: 'up\n', end: { cause: 'container_gone' } })
  await box[Symbol.asyncDispose]()
})

t.test('a caller that fails ends the command', async (t) => {
  await using box = await container()
  const failure = new Error('disk full')
  const running = box.run(['sh', '-c', 'echo up; sleep 78'], {
    onOutput: () => {
      throw failure
    },
  })
  await t.rejects(running, failure)
  t.strictSame(others(box), [])
})

t.test('a connection to the engine that breaks is never taken for the command’s end', async (t) => {
  const cuts: [how: string, script: string, cut: (proxy: CuttingProxy) => void][] = [
    [
      'it writes on',
      'echo up; while :; do echo more; sleep 0.05; done',
      (proxy) => proxy.cut('/start'),
    ],
    [
      'it writes once more and exits 0',
      'echo up; sleep 0.5; echo lost; exit 0',
      (proxy) => proxy.cut('/start'),
    ],
    ['the engine is gone for good', 'echo up; sleep 78', (proxy) => proxy.stop()],
  ]
  await using box = await container()
  for (const [how, script, cut] of cuts) {
    await using proxy = await cuttingProxy(socketPath)
    await using distant = await DockerEngine.connect({ socketPath: proxy.socketPath })
    const start = execStartSchema.parse({ argv: ['sh', '-c', script] })
    let cutDone = false
    const end = await runExec(distant, box.id, start, {
      execId: crypto.randomUUID(),
      cgroup: box.cgroup,
      onOutput: () => {
        if (!cutDone) cut(proxy)
        cutDone = true
      },
    })
    t.equal(end.cause, 'engine_lost', how)
    await until('nothing of it is left', () => others(box).length === 0)
  }
})

t.test('events that were missed while the engine was away are caught up with', async (t) => {
  await using box = await container()
  await using proxy = await cuttingProxy(socketPath)
  await using distant = await DockerEngine.connect({ socketPath: proxy.socketPath })
  const start = execStartSchema.parse({ argv: ['sh', '-c', 'echo up; exit 42'] })
  const end = await runExec(distant, box.id, start, {
    execId: crypto.randomUUID(),
    cgroup: box.cgroup,
    onStarted: () => proxy.cut('/events'),
    onOutput: () => undefined,
  })
  t.match(end, { exit: { code: 42 }, cause: 'exited', stdout: { totalBytes: 3 } })
})
