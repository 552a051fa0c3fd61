/** Execs in a real container: that what is told about a command is what happened to it. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import t from 'tap'
import { isLive } from '../../../daemon/engine/cgroup.ts'
import { serveExec } from '../../../daemon/exec/serve-exec.ts'
import type { ServedExecRecorder } from '../../../daemon/exec/serve-exec.ts'
import { openExec } from '../../../daemon/protocol/exec-client.ts'
import {
  encodeFrame,
  encodeJsonFrame,
  execProtocol,
  frameType,
} from '../../../daemon/protocol/exec-frames.ts'
import type { ExecStartInput } from '../../../daemon/protocol/exec-frames.ts'
import { testEngine } from '../../support/engine.ts'
import type { TestContainer } from '../../support/engine.ts'

const { engine, container, dispose } = await testEngine()
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
  const server = box.run(['sh', '-c', '(sleep 61 &); (env -i sleep 62 &); sleep 63'])
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

interface Heard {
  readonly lines: string[]
  readonly done: Promise<void>
}

/** A server that runs execs in `box` at any address, and what its recorder heard. */
async function serve(
  box: TestContainer,
): Promise<AsyncDisposable & Heard & { socketPath: string }> {
  const directory = await mkdtemp(join(tmpdir(), 'cb-exec-'))
  const socketPath = join(directory, 's')
  const lines: string[] = []
  const { promise: done, resolve } = Promise.withResolvers<void>()
  const recorder: ServedExecRecorder = {
    started: (_exec, { argv }) => lines.push(`started ${argv.join(' ')}`),
    output: (_exec, bytes) => lines.push(`output ${bytes.length}`),
    ended: ({ cause }) => {
      lines.push(`ended ${cause}`)
      resolve()
    },
    failed: (_exec, message) => {
      lines.push(`failed ${message.slice(0, 30)}`)
      resolve()
    },
  }
  const server = createServer()
  server.on('upgrade', (request, socket, head) => {
    serveExec(request, socket, head, {
      engine,
      containerId: box.id,
      cgroup: box.cgroup,
      defaults: { workdir: '/work' },
      recorder,
    })
  })
  server.listen(socketPath)
  await once(server, 'listening')
  return {
    socketPath,
    lines,
    done,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise((closed) => server.close(closed))
      await rm(directory, { recursive: true, force: true })
    },
  }
}

t.test('over the wire: bytes, exit, defaults and errors pass through', async (t) => {
  await using box = await container()
  await using server = await serve(box)
  const target = { socketPath: server.socketPath, path: '/v1/leases/x/exec' }
  const out: Buffer[] = []
  const errors: Buffer[] = []
  const end = await openExec(
    target,
    {
      argv: ['sh', '-c', 'pwd; head -c 1000000 /dev/urandom | tee /work/copy; echo e >&2; exit 7'],
    },
    {
      onStdout: (_offset, bytes) => void out.push(bytes),
      onStderr: (_offset, bytes) => void errors.push(bytes),
    },
  )
  t.match(end, { exit: { code: 7 }, cause: 'exited', stdout: { totalBytes: 1_000_006 } })
  const bytes = Buffer.concat(out)
  t.equal(bytes.subarray(0, 6).toString(), '/work\n')
  t.equal(Buffer.concat(errors).toString(), 'e\n')
  const summed = await box.run(['sha256sum', '/work/copy'])
  const hash = await crypto.subtle.digest('SHA-256', bytes.subarray(6))
  t.equal(summed.stdout.split(' ')[0], Buffer.from(hash).toString('hex'))
  await t.rejects(openExec(target, { argv: ['nosuch'] }), {
    name: 'RemoteError',
    code: 'exec_not_started',
    blame: 'caller',
  })
  const wrong = { argv: [] as string[] }
  await t.rejects(openExec(target, wrong), { code: 'bad_request', message: /argv/ })
  await t.rejects(openExec({ socketPath: '/nonexistent', path: '/' }, { argv: ['true'] }), {
    code: 'daemon_unreachable',
  })
})

t.test(
  'over the wire: input of any size, read or not, and a kill that is not stuck behind it',
  async (t) => {
    await using box = await container()
    await using server = await serve(box)
    const target = { socketPath: server.socketPath, path: '/' }
    const megabytes = 8
    const out: Buffer[] = []
    const end = await openExec(
      target,
      { argv: ['wc', '-c'] },
      {
        stdin: Readable.from(
          Array.from({ length: megabytes }, () => Buffer.alloc(1024 * 1024, 'x')),
        ),
        onStdout: (_offset, bytes) => void out.push(bytes),
      },
    )
    t.match(end, { exit: { code: 0 } })
    t.equal(Buffer.concat(out).toString(), `${megabytes * 1024 * 1024}\n`)

    let sent = 0
    async function* endless(): AsyncGenerator<Buffer> {
      for (;;) {
        sent += 65_536
        yield Buffer.alloc(65_536, 'x')
      }
    }
    const stop = new AbortController()
    const stuck = openExec(
      target,
      { argv: ['sleep', '78'] },
      { stdin: Readable.from(endless()), signal: stop.signal },
    )
    let before = -1
    await until('the sender has stopped', async () => {
      const same = before === sent && sent > 0
      before = sent
      await new Promise((resolve) => setTimeout(resolve, 200))
      return same
    })
    t.ok(sent < 8 * 1024 * 1024, `${sent} bytes were taken`)
    stop.abort()
    t.match(await stuck, { cause: 'killed', exit: { signal: 'SIGKILL' } })
    t.strictSame(others(box), [])
  },
)

async function raw(socketPath: string): Promise<Socket> {
  const socket = connect(socketPath)
  socket.write(
    `POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: ${execProtocol}\r\n\r\n`,
  )
  await once(socket, 'data')
  return socket
}

t.test('a client that goes away ends its command, unless it asked otherwise', async (t) => {
  await using box = await container()
  for (const how of ['destroy', 'end'] as const) {
    await using server = await serve(box)
    const socket = await raw(server.socketPath)
    socket.write(
      encodeJsonFrame(frameType.start, { argv: ['sh', '-c', 'setsid sleep 77 & sleep 78'] }),
    )
    await until('it runs', () => others(box).length === 3)
    socket[how]()
    await server.done
    t.strictSame(server.lines.at(-1), 'ended disconnected', how)
    t.strictSame(others(box), [], how)
  }
  await using server = await serve(box)
  const socket = await raw(server.socketPath)
  const script = 'sleep 0.5; seq 1 100000; touch /work/finished'
  socket.write(
    encodeJsonFrame(frameType.start, { argv: ['sh', '-c', script], onDisconnect: 'continue' }),
  )
  await until('it runs', () => others(box).length > 0)
  socket.destroy()
  await server.done
  t.equal(server.lines.at(-1), 'ended exited')
  t.match((await box.run(['ls', '/work'])).stdout, /finished/)
})

t.test('nonsense on the wire is answered and harms nobody', async (t) => {
  await using box = await container()
  await using server = await serve(box)
  for (const [what, bytes] of [
    ['a frame too large', Buffer.from([0, 255, 255, 255, 255])],
    ['START without JSON', encodeFrame(frameType.start, Buffer.from('{'))],
    ['an unknown key', encodeJsonFrame(frameType.start, { argv: ['true'], privileged: true })],
    ['a server’s frame', encodeJsonFrame(frameType.exit, {})],
  ] as const) {
    const socket = await raw(server.socketPath)
    socket.write(bytes)
    const chunks: Buffer[] = []
    for await (const chunk of socket as AsyncIterable<Buffer>) chunks.push(chunk)
    const answer = Buffer.concat(chunks)
    t.equal(answer.readUInt8(0), frameType.error, what)
    t.match(answer.subarray(5).toString(), /bad_request/, what)
  }
  const plain = connect(server.socketPath)
  plain.write('POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
  t.match(String((await once(plain, 'data'))[0]), /^HTTP\/1.1 400 /)
  t.strictSame(server.lines, [], 'nothing was run')
  t.strictSame(others(box), [])
})
