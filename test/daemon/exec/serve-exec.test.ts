/** Execs over the wire: a real server, a real client, a real container between them. */
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
      encodeJsonFrame(frameType.start, { argv: ['sh', '-c', 'setsid sleep 77 & sleep 78; true'] }),
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
