/**
 * The proof: canaries run inside the sandbox by its own user with its own capabilities and seccomp filter, from a
 * static busybox mounted read-only, before the agent starts; and again when it has ended, then from the host's side
 * of its network namespace without any capability, for an agent can break every file of its sandbox. Each must end as expected
 * and, where it leaves a trace by nature, stand in the audit log. One surprise and the sandbox is not used.
 */
import { randomBytes } from 'node:crypto'
import os from 'node:os'
import type { AuditEvent } from '../../policy/audit-event.ts'
import type { CanaryResult } from '../protocol/lease.ts'
import { ports } from './rules.ts'

export interface Canary {
  readonly name: string
  /** A busybox shell command; its output, exit status and duration are judged by `expect`. */
  readonly command: string
  readonly expected: string
  readonly expect: (result: { exit: number; output: string }) => boolean
  /** True for a fact of creation that an agent with root may have changed since: not asked again afterwards. */
  readonly onlyBefore?: true
  /** The audit event that it must leave; absent where the kernel refuses before there is anything to record. */
  readonly audited?: (event: AuditEvent) => boolean
}

const outside = '198.51.100.7'
/** Set at the top of the program: where busybox is depends on who runs it. */
const busybox = '"$busybox"'
const refused = 'refused'

/** Addresses of this host that a sandbox must not reach, at most four: one of each interface first. */
export function hostAddresses(): string[] {
  const found: string[] = []
  for (const addresses of Object.values(os.networkInterfaces()))
    for (const address of addresses ?? [])
      if (address.family === 'IPv4' && !address.internal) found.push(address.address)
  return found.slice(0, 4)
}

const censusOf = (protocol: AuditEvent['protocol'], address: string, port: number) => {
  return (event: AuditEvent): boolean =>
    event.kind === 'census' &&
    event.protocol === protocol &&
    // Where an agent has filled the set of addresses, ours is among those that are counted without one.
    ((event.address === address && event.port === port) || event.address === null)
}

export interface ProofOptions {
  readonly phase: 'before' | 'after'
  readonly model: boolean
  readonly exec: boolean
  /** Path of an artifact that the Hugging Face gateway serves; null where there is no gateway. */
  readonly artifact?: string | null
}

export function canaries(options: ProofOptions): Canary[] {
  const nonce = randomBytes(8).toString('hex')
  const canaryPort = 20_000 + (randomBytes(2).readUInt16BE() % 10_000)
  const failed = ({ exit }: { exit: number }): boolean => exit !== 0
  const silent = ({ output }: { output: string }): boolean => output === ''
  const list: Canary[] = [
    {
      name: 'interfaces',
      command: `${busybox} tail -n +3 /proc/net/dev | ${busybox} cut -d : -f 1 | ${busybox} tr -d ' '`,
      expected: 'lo only',
      expect: ({ output }) => output === 'lo',
    },
    {
      name: 'direct-tcp',
      command: `${busybox} nc -w 1 ${outside} ${canaryPort} 2>/dev/null`,
      expected: 'closed without a byte',
      expect: silent,
      audited: censusOf('tcp', outside, canaryPort),
    },
    {
      name: 'direct-tls',
      command: `echo ${nonce} | ${busybox} nc -w 1 ${outside} 443 2>/dev/null`,
      expected: 'nothing but a TLS alert',
      expect: ({ output }) => output === '' || output.startsWith('\u0015\u0003'),
      audited: (event) =>
        event.address === outside && event.port === 443 && event.action === 'deny',
    },
    {
      name: 'direct-udp',
      command: `${busybox} tftp -g -r ${nonce} -l /dev/null ${outside} ${canaryPort}`,
      expected: refused,
      expect: failed,
      audited: censusOf('udp', outside, canaryPort),
    },
    {
      name: 'dns-name',
      command: `${busybox} nslookup ${nonce}.canary.example ${outside}`,
      expected: 'no address',
      expect: failed,
      audited: (event) => event.protocol === 'dns' && event.host === `${nonce}.canary.example`,
    },
    {
      name: 'metadata',
      command: `${busybox} nc -w 1 169.254.169.254 ${canaryPort} 2>/dev/null`,
      expected: 'closed without a byte',
      expect: silent,
      audited: censusOf('tcp', '169.254.169.254', canaryPort),
    },
    {
      name: 'ipv6',
      command: `${busybox} nc -w 1 2001:db8::7 443`,
      expected: refused,
      expect: failed,
    },
    {
      name: 'raw-socket',
      command: `${busybox} ping -c 1 -W 1 ${outside}`,
      expected: refused,
      expect: failed,
    },
    {
      name: 'packet-socket',
      command: `${busybox} arping -c 1 -w 1 -I lo ${outside}`,
      expected: refused,
      expect: failed,
    },
    {
      name: 'engine-socket',
      command: `for s in /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock; do [ -e $s ] && echo $s; done; true`,
      expected: 'absent',
      expect: silent,
      onlyBefore: true,
    },
    {
      name: 'resolver',
      command: `${busybox} grep -v '^nameserver 127.0.0.1$' /etc/resolv.conf | ${busybox} grep '^nameserver'; true`,
      expected: 'loopback only',
      expect: silent,
      onlyBefore: true,
    },
    {
      name: 'denied-connect',
      command: `printf 'CONNECT ${nonce}.denied.example:443 HTTP/1.1\\r\\nHost: ${nonce}.denied.example:443\\r\\n\\r\\n' | ${busybox} nc -w 2 127.0.0.1 ${ports.proxy} | ${busybox} head -n 1`,
      expected: '403',
      expect: ({ output }) => output.startsWith('HTTP/1.1 403'),
      audited: (event) =>
        event.protocol === 'connect' &&
        event.action === 'deny' &&
        event.host === `${nonce}.denied.example`,
    },
    ...hostAddresses().map((address): Canary => {
      return {
        name: `host-address-${address}`,
        command: `${busybox} nc -w 1 ${address} ${canaryPort} 2>/dev/null`,
        expected: 'closed without a byte',
        expect: silent,
        audited: censusOf('tcp', address, canaryPort),
      }
    }),
  ]
  if (options.model)
    list.push({
      name: 'model-ping',
      command: ping(ports.model, '/closedbook/ping'),
      expected: '200',
      expect: ({ output }) => output.startsWith('HTTP/1.1 200'),
    })
  const { artifact = null } = options
  if (artifact !== null)
    list.push({
      name: 'artifact-head',
      command: ping(ports.huggingFace, artifact, 'HEAD'),
      expected: '200',
      expect: ({ output }) => output.startsWith('HTTP/1.1 200'),
      audited: (event) => event.protocol === 'hf' && event.reason === 'allowed_artifact',
    })
  if (options.exec)
    list.push({
      name: 'exec-ping',
      command: ping(ports.exec, '/v1/ping'),
      expected: '200',
      expect: ({ output }) => output.startsWith('HTTP/1.1 200'),
    })
  return options.phase === 'before' ? list : list.filter(({ onlyBefore }) => onlyBefore !== true)
}

/** `path` holds no quote and no percent sign that a shell or printf could take for its own. */
const ping = (port: number, path: string, method = 'GET'): string =>
  `printf '${method} ${path.replaceAll('%', '%%').replaceAll("'", '%%27')} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n' | ${busybox} nc -w 2 127.0.0.1 ${port} | ${busybox} head -n 1`

const mark = '\u0001'

/** A shell that waits for `canaryProgram` on its input. */
export const canaryArgv = (busyboxPath: string): string[] => [busyboxPath, 'sh', '-s']

/** One shell program that runs all canaries at once and prints `mark name exit output mark` for each. */
export function canaryProgram(list: readonly Canary[], busyboxPath: string): string {
  const runs = list.map(
    ({ name, command }) =>
      `( o=$( { ${command}; } 2>&1 </dev/null ); echo "${mark}${name} $? $o${mark}" ) &`,
  )
  return `busybox='${busyboxPath.replaceAll("'", "'\\''")}'\n${runs.join('\n')}\nwait\n`
}

/** Judges the program's output against the audit events that were recorded while it ran. */
export function judge(
  list: readonly Canary[],
  output: string,
  events: readonly AuditEvent[],
): CanaryResult[] {
  const results = new Map<string, { exit: number; output: string }>()
  for (const part of output.split(mark)) {
    const match = /^([a-z0-9.-]+) (\d+) ?([^]*)$/.exec(part)
    if (match !== null)
      results.set(match[1] ?? '', { exit: Number(match[2]), output: (match[3] ?? '').trim() })
  }
  return list.map((canary) => {
    const result = results.get(canary.name)
    const audited = canary.audited === undefined ? null : events.some(canary.audited)
    const asExpected = result !== undefined && canary.expect(result)
    const seen = result === undefined ? 'did not run' : describe(result)
    return {
      canary: canary.name,
      expected: canary.expected,
      seen: asExpected ? canary.expected : seen,
      audited,
      ok: asExpected && audited !== false,
    }
  })
}

const describe = ({ exit, output }: { exit: number; output: string }): string =>
  `exit ${exit}${output === '' ? '' : `: ${JSON.stringify(output.slice(0, 200))}`}`
