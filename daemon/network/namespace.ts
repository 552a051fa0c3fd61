/** Commands and listeners inside the network namespace of a running container, reached by the pid of its PID 1. */
import { spawn } from 'node:child_process'
import type dgram from 'node:dgram'
import { readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import net from 'node:net'
import { fileURLToPath } from 'node:url'
import { LeaseError } from '../errors.ts'

const helper = fileURLToPath(new URL('namespace-helper.ts', import.meta.url))
/** Stripped once, here: Node needs 30 ms to do it at each start, and a lease waits for them. */
const helperCode = helper.endsWith('.ts')
  ? stripTypeScriptTypes(readFileSync(helper, 'utf8'))
  : readFileSync(helper, 'utf8')

export interface ListenerSpec {
  readonly name: string
  readonly protocol: 'tcp' | 'udp'
  readonly host: string
  readonly port: number
}

const enter = (pid: number, argv: readonly string[]): string[] => [
  `--net=/proc/${pid}/ns/net`,
  '--',
  ...argv,
]

/** Runs one short command in the namespace; resolves with its output, rejects with what it said. */
export async function runInNamespace(
  pid: number,
  argv: readonly string[],
  options: { input?: string; signal?: AbortSignal } = {},
): Promise<string> {
  const child = spawn('nsenter', enter(pid, argv), {
    stdio: ['pipe', 'pipe', 'pipe'],
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  })
  child.stdin.on('error', () => {})
  child.stdin.end(options.input ?? '')
  const output: Buffer[] = []
  const complaint: Buffer[] = []
  child.stdout.on('data', (chunk: Buffer) => output.push(chunk))
  child.stderr.on('data', (chunk: Buffer) => complaint.push(chunk))
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  if (code === 0) return Buffer.concat(output).toString()
  throw new LeaseError(
    'seal_failed',
    'infra',
    `${argv[0] ?? 'command'} failed in the sandbox's network namespace: ${Buffer.concat(complaint).toString().trim()}`,
  )
}

export interface OpenedListeners {
  readonly tcp: ReadonlyMap<string, net.Server>
  readonly udp: ReadonlyMap<string, dgram.Socket>
}

/** Opens listeners in the namespace and brings them here; all of them or none. */
export async function listenInNamespace(
  pid: number,
  wanted: readonly ListenerSpec[],
  options: { signal?: AbortSignal } = {},
): Promise<OpenedListeners> {
  const child = spawn(
    'nsenter',
    enter(pid, [
      ...[process.execPath, '--no-warnings', '--input-type=module', '-e', helperCode],
      ...['--', helper, JSON.stringify(wanted)],
    ]),
    {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env: {},
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    },
  )
  const tcp = new Map<string, net.Server>()
  const udp = new Map<string, dgram.Socket>()
  let complaint = ''
  child.stderr?.on('data', (chunk: Buffer) => (complaint += chunk.toString()))
  try {
    await new Promise<void>((resolve, reject) => {
      child.once('error', reject)
      child.on('message', (message: { name?: string; failed?: string; done?: true }, handle) => {
        if (message.failed !== undefined) return reject(new Error(message.failed))
        if (message.done) return resolve()
        if (message.name === undefined || handle === undefined) return
        if (handle instanceof net.Server) tcp.set(message.name, handle)
        else udp.set(message.name, handle as dgram.Socket)
      })
      child.once('close', () => reject(new Error(complaint.trim() || 'the helper ended early')))
    })
  } catch (error) {
    for (const server of tcp.values()) server.close()
    for (const socket of udp.values()) socket.close()
    throw new LeaseError(
      'seal_failed',
      'infra',
      `cannot listen inside the sandbox's network namespace: ${(error as Error).message}`,
      { cause: error },
    )
  }
  return { tcp, udp }
}
