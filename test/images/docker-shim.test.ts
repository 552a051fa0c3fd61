import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { buffer } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import type { ExecEnd } from '../../daemon/protocol/exec-frames.ts'
import { fakeExecGateway } from './fake-exec-gateway.ts'
import type { FakeGateway, Session } from './fake-exec-gateway.ts'

const shim = fileURLToPath(new URL('../../images/harness/docker', import.meta.url))
const python = existsSync('/usr/bin/python3') ? '/usr/bin/python3' : 'python3'
const key = 'sk-must-not-travel'

function start(gateway: FakeGateway | string, argv: readonly string[]): ChildProcess {
  const address = typeof gateway === 'string' ? gateway : gateway.address
  return spawn(python, ['-IS', shim, ...argv], {
    env: { PATH: '/usr/bin:/bin', CLOSEDBOOK_EXEC_GATEWAY: address, OPENAI_API_KEY: key },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
}

async function ended(
  child: ChildProcess,
): Promise<{ stdout: Buffer; stderr: string; how: unknown }> {
  const { stdout, stderr } = child
  if (stdout === null || stderr === null) throw new Error('the shim has no pipes')
  const how = once(child, 'close').then(([code, signal]: unknown[]) => signal ?? code)
  const [out, err] = await Promise.all([buffer(stdout), buffer(stderr)])
  return { stdout: out, stderr: err.toString(), how: await how }
}

async function shimmed(
  script: Parameters<typeof fakeExecGateway>[0],
  argv: readonly string[],
): Promise<Awaited<ReturnType<typeof ended>> & { gateway: FakeGateway }> {
  await using gateway = await fakeExecGateway(script)
  const child = start(gateway, argv)
  child.stdin?.end()
  return { ...(await ended(child)), gateway }
}

t.test(
  'exec passes on what mini-SWE-agent says and gives back output and code alone',
  async (t) => {
    const command = 'printf "é\\n"; exit 3'
    const argv = [
      'exec',
      '-w',
      '/workspace/sglang',
      '-e',
      'PAGER=cat',
      '-e',
      'LESS=-R',
      '-e',
      'A=b=c',
    ]
    let session: Session | undefined
    const end = await shimmed(
      {
        exec: (opened) => {
          session = opened
          opened.output(Buffer.from('é\n'))
          opened.output(Buffer.from([0, 255, 13, 10]))
          opened.exit({ exit: { code: 3 } })
        },
      },
      [...argv, 'box-1', 'bash', '-lc', command],
    )
    t.strictSame(end.stdout, Buffer.concat([Buffer.from('é\n'), Buffer.from([0, 255, 13, 10])]))
    t.equal(end.stderr, '')
    t.equal(end.how, 3)
    t.strictSame(session?.start, {
      argv: ['bash', '-lc', command],
      env: { PAGER: 'cat', LESS: '-R', A: 'b=c' },
      workdir: '/workspace/sglang',
      stdin: false,
      merged: true,
      outputLimitBytes: 1024 * 1024,
      onDisconnect: 'kill',
    })
    t.notOk(Buffer.concat(end.gateway.received).includes(key), 'the model key stays behind')
  },
)

t.test('words after the container belong to the command, flags and odd text alike', async (t) => {
  let session: Session | undefined
  const words = ['sh', '-c', '--', '-t', '', '"\\\u0001\u2028', '😀', '-e', 'X']
  const end = await shimmed(
    {
      exec: (opened) => {
        session = opened
        opened.exit({})
      },
    },
    ['exec', '--workdir=/w', '-u1000:1000', '--env', 'K=', 'box-1', ...words],
  )
  t.equal(end.how, 0, end.stderr)
  t.match(session?.start, { argv: words, workdir: '/w', user: '1000:1000', env: { K: '' } })
})

t.test(
  '8 MB of random output arrive byte for byte, whatever the frames are cut into',
  async (t) => {
    const bytes = randomBytes(8 * 1024 * 1024)
    const end = await shimmed(
      {
        exec: (session) => {
          for (
            let at = 0, size = 1;
            at < bytes.length;
            at += size, size = ((size * 7) % 65_521) + 1
          )
            session.output(bytes.subarray(at, at + size))
          session.exit({})
        },
      },
      ['exec', 'box-1', 'cat'],
    )
    const hash = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex')
    t.equal(hash(end.stdout), hash(bytes))
    t.equal(end.how, 0)
  },
)

t.test('output that the daemon left out is named where it is missing', async (t) => {
  const end = await shimmed(
    {
      exec: (session) => {
        session.output(Buffer.from('head'))
        session.output(Buffer.from('tail'), 104)
        session.exit({})
      },
    },
    ['exec', 'box-1', 'yes'],
  )
  t.equal(end.stdout.toString(), 'head\n[100 bytes of output left out]\ntail')
})

t.test('output is passed on as it comes, and a killed shim lets go of its command', async (t) => {
  const gone = Promise.withResolvers<void>()
  await using gateway = await fakeExecGateway({
    exec: (session) => {
      session.output(Buffer.from('so far'))
      void session.closed.then(() => gone.resolve())
    },
  })
  const child = start(gateway, ['exec', 'box-1', 'sleep', '60'])
  const end = ended(child)
  await once(child.stdout ?? child, 'data')
  child.kill('SIGKILL')
  await gone.promise
  t.equal((await end).how, 'SIGKILL')
})

t.test('a reader that goes away ends the shim quietly, and with it the command', async (t) => {
  const gone = Promise.withResolvers<void>()
  await using gateway = await fakeExecGateway({
    exec: (session) => {
      const more = (): void => {
        if (session.socket.writable) session.output(Buffer.alloc(65_536, 'y'))
      }
      session.socket.on('drain', more)
      void session.closed.then(() => gone.resolve())
      for (let at = 0; at < 64; at++) more()
    },
  })
  const child = start(gateway, ['exec', 'box-1', 'yes'])
  const how = once(child, 'exit').then(([code, signal]: unknown[]) => signal ?? code)
  const noise = child.stderr === null ? '' : buffer(child.stderr)
  await once(child.stdout ?? child, 'data')
  child.stdout?.destroy()
  await gone.promise
  t.equal(await how, 'SIGPIPE')
  t.equal((await noise).toString(), '')
})

t.test('-i carries stdin to its end', async (t) => {
  const input = randomBytes(900_000)
  let session: Session | undefined
  await using gateway = await fakeExecGateway({
    exec: (opened) => {
      session = opened
      void opened.stdinEnded.then(() => opened.exit({ exit: { code: 7 } }))
    },
  })
  const child = start(gateway, ['exec', '-i', 'box-1', 'tee', 'x'])
  child.stdin?.end(input)
  t.equal((await ended(child)).how, 7)
  t.equal(session?.start.stdin, true)
  t.ok(Buffer.concat(session?.stdin ?? []).equals(input))
})

t.test('how a command ended decides the code', async (t) => {
  const killed = { exit: { signal: 'SIGKILL' } } as const
  const table: readonly [end: Partial<ExecEnd>, code: number, says: RegExp, why: string][] = [
    [{ exit: { code: 0 } }, 0, /^$/, 'success'],
    [{ exit: { code: 124 } }, 124, /^$/, 'a code of the command is passed on, whatever it is'],
    [killed, 137, /^$/, 'a signal is 128 + its number'],
    [{ exit: { signal: 'SIGTERM' } }, 143, /^$/, 'a signal is 128 + its number'],
    [{ ...killed, cause: 'timeout' }, 137, /^$/, 'our own time limit is a kill'],
    [{ ...killed, cause: 'container_gone' }, 125, /container is gone/, 'not the command’s end'],
    [{ exit: 'unknown', cause: 'engine_lost' }, 125, /engine was lost/, 'not the command’s end'],
    [{ exit: 'unknown' }, 125, /unknown/, 'never a guess'],
  ]
  for (const [end, code, says, why] of table) {
    const seen = await shimmed({ exec: (session) => session.exit(end) }, ['exec', 'b', 'true'])
    t.equal(seen.how, code, why)
    t.match(seen.stderr, says, why)
    t.equal(seen.stdout.length, 0, why)
  }
})

t.test('faults of the gateway are one line and docker’s code', async (t) => {
  const code = 'lease_wrong_state'
  const table: readonly [
    script: Parameters<typeof fakeExecGateway>[0],
    code: number,
    says: RegExp,
  ][] = [
    [
      { refuse: { status: 409, body: { code, message: 'the agent phase\nis over' } } },
      125,
      /^docker: lease_wrong_state: the agent phase is over\n$/,
    ],
    [{ exec: (session) => session.error('no such thing') }, 125, /engine_refused: no such thing/],
    [
      { exec: (session) => session.error('exec: "x": executable file not found in $PATH') },
      127,
      /x/,
    ],
    [{ exec: (session) => session.error('exec: "/x": permission denied') }, 126, /permission/],
    [{ exec: (session) => void session.socket.destroy() }, 125, /closed the connection|reset/],
    [{ exec: (session) => void session.socket.end(Buffer.alloc(5, 255)) }, 125, /over the limit/],
  ]
  for (const [script, exit, says] of table) {
    const seen = await shimmed(script, ['exec', 'box-1', 'x'])
    t.equal(seen.how, exit, String(says))
    t.match(seen.stderr, says)
    t.equal(seen.stderr.split('\n').length, 2, 'one line')
    t.equal(seen.stdout.length, 0, 'nothing on stdout')
  }
})

t.test('run waits for the sandbox and prints one plain word', async (t) => {
  const argv = ['run', '-d', '--name', 'minisweagent-0a1b2c3d', '-w', '/work']
  const end = await shimmed({ run: { status: 200, body: { id: 'box-9' } } }, [
    ...argv,
    'some/image@sha256:00',
    'sleep',
    'infinity',
  ])
  t.strictSame([end.stdout.toString(), end.stderr, end.how], ['box-9\n', '', 0])
  t.strictSame(end.gateway.calls, [
    {
      path: '/v1/run',
      body: { image: 'some/image@sha256:00', workdir: '/work', name: 'minisweagent-0a1b2c3d' },
    },
  ])
  for (const id of ['two words', '$(reboot)', '-rf', '', 7]) {
    const odd = await shimmed({ run: { status: 200, body: { id } } }, [...argv, 'image'])
    t.strictSame([odd.stdout.length, odd.how], [0, 125], `an id like ${id} never reaches a shell`)
  }
  const refused = { status: 503, body: { code: 'seal_failed', message: 'no network' } }
  const never = await shimmed({ run: refused }, [...argv, 'image'])
  t.strictSame(
    [never.stdout.length, never.stderr, never.how],
    [0, 'docker: seal_failed: no network\n', 125],
  )
})

t.test('stop and rm end the agent phase and print the container as docker does', async (t) => {
  for (const argv of [
    ['stop', '-t', '3', 'box-1'],
    ['rm', '-f', 'box-1'],
  ]) {
    const end = await shimmed({}, argv)
    t.strictSame([end.stdout.toString(), end.stderr, end.how], ['box-1\n', '', 0])
    t.strictSame(end.gateway.calls, [{ path: '/v1/stop', body: {} }])
  }
})

t.test('what the sandbox does not have is refused before anything is sent', async (t) => {
  const table: readonly [argv: readonly string[], says: RegExp, why: string][] = [
    [[], /no verb/, 'no verb at all'],
    [['ps'], /ps: only run, exec, stop and rm/, 'a verb of docker that no harness needs'],
    [['--host', 'x', 'ps'], /--host: only/, 'a global flag'],
    [['exec', '-t', 'b', 'sh'], /no terminal/, 'no terminal'],
    [['exec', '-it', 'b', 'sh'], /no terminal/, 'no terminal, joined'],
    [['exec', '-d', 'b', 'sh'], /-d is not supported/, 'nothing is left running unseen'],
    [['exec', '--privileged', 'b', 'sh'], /--privileged is not supported/, 'no privileges'],
    [['exec', '-e', 'OPENAI_API_KEY', 'b', 'env'], /NAME=VALUE/, 'the key can’t be passed in'],
    [['exec', '-w'], /-w needs a value/, 'a flag cut short'],
    [['exec', 'b'], /needs a container and a command/, 'no command'],
    [['run', '--name', 'x', 'image'], /detached/, 'a container in the foreground'],
    [['run', '-d', '-v', '/:/host', 'image'], /-v is not supported/, 'a mount'],
    [['run', '-d', '--network=host', 'image'], /--network is not supported/, 'a network'],
    [['run', '-d'], /needs an image/, 'no image'],
    [['stop'], /needs a container/, 'nothing to stop'],
  ]
  await using gateway = await fakeExecGateway({})
  for (const [argv, says, why] of table) {
    const end = await ended(start(gateway, argv))
    t.match(end.stderr, says, why)
    t.strictSame([end.stdout.length, end.how, end.stderr.split('\n').length], [0, 125, 2], why)
  }
  t.strictSame(gateway.received, [])
})

t.test('without a gateway it says so at once', async (t) => {
  const gateway = await fakeExecGateway({})
  await gateway[Symbol.asyncDispose]()
  const end = await ended(start(gateway.address, ['exec', 'box-1', 'true']))
  t.equal(end.how, 125)
  t.match(end.stderr, /^docker: the exec gateway at 127\.0\.0\.1:\d+ can't be reached: .*\n$/)
})
