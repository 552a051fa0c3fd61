/**
 * A real Docker engine for tests: the one that CLOSEDBOOK_TEST_ENGINE or DOCKER_HOST names, else a private one with its
 * own data root, which needs root and is gone after `dispose`. The base image is busybox and nothing else.
 */
import { execFile, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { access, mkdir, mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { pack } from 'tar-stream'
import { Cgroup } from '../../daemon/engine/cgroup.ts'
import type { ContainerSpec } from '../../daemon/engine/container-spec.ts'
import { DockerEngine } from '../../daemon/engine/docker.ts'
import { runExec } from '../../daemon/exec/exec.ts'
import type { OnOutput } from '../../daemon/exec/output-cap.ts'
import { execStartSchema } from '../../daemon/protocol/exec-frames.ts'
import type { ExecEnd, ExecStartInput } from '../../daemon/protocol/exec-frames.ts'
import { resourcesSchema } from '../../daemon/protocol/lease.ts'

const run = promisify(execFile)
const startDeadlineMs = 60_000

export interface TestEngine extends AsyncDisposable {
  readonly socketPath: string
  readonly engine: DockerEngine
  /** Id of an image that holds busybox (as sh, bash and every applet), /etc/passwd with `root` and `agent` (1000), /tmp. */
  readonly baseImage: () => Promise<string>
  /** A spec that opens: override what the test is about. */
  readonly spec: (overrides?: Partial<ContainerSpec>) => Promise<ContainerSpec>
  /** Creates and starts a container of that spec; `await using` removes it. */
  readonly container: (overrides?: Partial<ContainerSpec>) => Promise<TestContainer>
  readonly dispose: () => Promise<void>
}

export interface TestContainer extends AsyncDisposable {
  readonly id: string
  /** Host pid of PID 1. */
  readonly pid: number
  readonly upperDir: string | null
  readonly cgroup: Cgroup
  /** Runs a command to its end by our own exec. */
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult>
}

export interface RunOptions {
  readonly start?: Partial<ExecStartInput>
  readonly stdin?: Readable
  readonly signal?: AbortSignal
  readonly onOutput?: OnOutput
}

export interface RunResult {
  readonly end: ExecEnd
  readonly stdout: string
  readonly stderr: string
}

/** `programs`: a directory that comes first on the PATH of an engine of the test's own; then no other is taken. */
export async function testEngine(own?: { programs: string }): Promise<TestEngine> {
  const named =
    own === undefined
      ? (process.env['CLOSEDBOOK_TEST_ENGINE'] ?? unixPath(process.env['DOCKER_HOST']))
      : undefined
  const started = named === undefined ? await startEngine(own) : undefined
  const socketPath = named ?? (started as StartedEngine).socketPath
  const engine = await DockerEngine.connect({ socketPath })
  const dispose = async (): Promise<void> => {
    await engine.close()
    await started?.stop()
  }
  let base: Promise<string> | undefined
  const baseImage = (): Promise<string> => (base ??= importBase(engine))
  const spec = async (overrides: Partial<ContainerSpec> = {}): Promise<ContainerSpec> => ({
    image: await baseImage(),
    name: `cbt-${crypto.randomUUID()}`,
    hostname: 'sandbox',
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
    labels: { 'closedbook.test': '1' },
    capabilities: [],
    resources: resourcesSchema.parse({}),
    readOnlyMounts: [],
    mountRoots: [],
    initPath: await findTool('catatonit'),
    busyboxPath: await findTool('busybox'),
    ...overrides,
  })
  const container = async (overrides?: Partial<ContainerSpec>): Promise<TestContainer> => {
    const { id } = await engine.createContainer(await spec(overrides))
    await engine.startContainer(id)
    const { pid, upperDir } = await engine.inspectContainer(id)
    const cgroup = Cgroup.ofPid(pid)
    return {
      id,
      pid,
      upperDir,
      cgroup,
      run: (argv, options = {}) => runIn(engine, { id, cgroup }, argv, options),
      [Symbol.asyncDispose]: () => engine.removeContainer(id),
    }
  }
  return { socketPath, engine, baseImage, spec, container, dispose, [Symbol.asyncDispose]: dispose }
}

async function runIn(
  engine: DockerEngine,
  { id, cgroup }: { id: string; cgroup: Cgroup },
  argv: readonly string[],
  options: RunOptions,
): Promise<RunResult> {
  const output: Record<'stdout' | 'stderr', Buffer[]> = { stdout: [], stderr: [] }
  const start = execStartSchema.parse({
    argv,
    stdin: options.stdin !== undefined,
    ...options.start,
  })
  const end = await runExec(engine, id, start, {
    execId: crypto.randomUUID(),
    cgroup,
    onOutput: (stream, offset, bytes) => {
      output[stream].push(bytes)
      return options.onOutput?.(stream, offset, bytes)
    },
    ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  })
  const text = (stream: 'stdout' | 'stderr'): string => Buffer.concat(output[stream]).toString()
  return { end, stdout: text('stdout'), stderr: text('stderr') }
}

function unixPath(host: string | undefined): string | undefined {
  return host?.startsWith('unix://') === true ? host.slice('unix://'.length) : undefined
}

export async function findTool(name: string): Promise<string> {
  for (const directory of ['/usr/bin', '/bin', '/usr/local/bin', '/usr/sbin', '/usr/libexec']) {
    const path = join(directory, name)
    if (
      await access(path).then(
        () => true,
        () => false,
      )
    )
      return path
  }
  throw new Error(`${name} is not installed; install the packages catatonit and busybox-static`)
}

interface StartedEngine {
  readonly socketPath: string
  stop(): Promise<void>
}

/** Also for the test runner, which starts one engine for all files. */
export async function startEngine(own?: { programs: string }): Promise<StartedEngine> {
  const root = await mkdtemp(join(tmpdir(), 'cb-engine-'))
  const socketPath = join(root, 'docker.sock')
  const child = spawn(
    'dockerd',
    [
      `--data-root=${join(root, 'data')}`,
      `--exec-root=${join(root, 'exec')}`,
      `--host=unix://${socketPath}`,
      `--pidfile=${join(root, 'pid')}`,
      '--bridge=none',
      '--iptables=false',
      '--log-level=warn',
    ],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: {
        ...process.env,
        PATH: [own?.programs, process.env['PATH']].filter((part) => part !== undefined).join(':'),
      },
    },
  )
  let log = ''
  child.stderr.on('data', (chunk: Buffer) => {
    log = (log + chunk.toString('utf8')).slice(-8192)
  })
  const exited = new Promise<void>((resolve) => {
    child.once('exit', () => resolve())
    child.once('error', (error) => {
      log += error.message
      resolve()
    })
  })
  const stop = async (): Promise<void> => {
    if (child.exitCode === null && child.pid !== undefined) child.kill('SIGTERM')
    await exited
    await unmountUnder(root)
    await rm(root, { recursive: true, force: true })
  }
  const deadline = Date.now() + startDeadlineMs
  let gone = false
  void exited.then(() => (gone = true))
  while (!gone && Date.now() < deadline) {
    const probe = await DockerEngine.connect({ socketPath }).catch(() => null)
    if (probe !== null) {
      await probe.close()
      return { socketPath, stop }
    }
    await delay(100)
  }
  await stop()
  throw new Error(
    `no private Docker engine came up (root and the package docker.io are needed):\n${log}`,
  )
}

async function unmountUnder(root: string): Promise<void> {
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8'))
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((path) => path.startsWith(`${root}/`))
  for (const path of mounts.reverse()) await run('umount', ['-l', path]).catch(() => undefined)
}

async function importBase(engine: DockerEngine): Promise<string> {
  const busybox = await readFile(await findTool('busybox'))
  const { stdout } = await run(await findTool('busybox'), ['--list'])
  const applets = stdout.split('\n').filter((applet) => applet !== '' && applet !== 'busybox')
  const digest = createHash('sha256').update(busybox).update('2').digest('hex')
  const tag = `closedbook-test/busybox:${digest.slice(0, 16)}`
  // Two at a time would leave the first without a tag, and the engine deletes such an image with its last child.
  await using _lock = await lock(join(tmpdir(), `${tag.replaceAll(/\W/g, '-')}.lock`))
  const found = await engine.inspectImage(tag).catch(() => null)
  if (found !== null) return found.id
  const tar = pack()
  const directory = (name: string, mode = 0o755): void => {
    tar.entry({ name, type: 'directory', mode })
  }
  for (const name of ['bin', 'etc', 'root', 'work', 'proc', 'sys', 'dev']) directory(name)
  directory('tmp', 0o1777)
  tar.entry({ name: 'bin/busybox', mode: 0o755 }, busybox)
  tar.entry({ name: 'bin/bash', mode: 0o755 }, '#!/bin/sh\nexec /bin/sh "$@"\n')
  for (const applet of applets.filter((each) => each !== 'bash'))
    tar.entry({ name: `bin/${applet}`, type: 'symlink', linkname: 'busybox' })
  tar.entry(
    { name: 'etc/passwd' },
    'root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/work:/bin/sh\n',
  )
  tar.entry({ name: 'etc/group' }, 'root:x:0:\nagent:x:1000:\n')
  tar.finalize()
  const image = await engine.importImage(Readable.from(tar as AsyncIterable<Buffer>), { tag })
  return image.id
}

/** Held by one process at a time; a dead one's is taken over. */
async function lock(directory: string): Promise<AsyncDisposable> {
  const staleMs = 60_000
  for (;;)
    try {
      await mkdir(directory)
      return { [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }) }
    } catch {
      const { mtimeMs } = await stat(directory).catch(() => ({ mtimeMs: Date.now() }))
      if (Date.now() - mtimeMs > staleMs) await rm(directory, { recursive: true, force: true })
      else await delay(50)
    }
}
