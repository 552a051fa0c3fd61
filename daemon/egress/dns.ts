/**
 * The only DNS server that the sandbox can reach. It asks nobody: a denied name is told not to exist, at once; an
 * allowed name gets an address of 198.18.0.0/15, so that a program which ignores the proxy settings arrives at
 * our TLS or HTTP listener, where the name in its request decides again. Every query is recorded.
 */
import { createHash } from 'node:crypto'
import type { RemoteInfo, Socket as UdpSocket } from 'node:dgram'
import type { Socket } from 'node:net'
import { decide } from '../../policy/decide.ts'
import { deny } from '../../policy/decision.ts'
import { parseHost } from '../../policy/host.ts'
import { printable } from '../../policy/printable.ts'
import { destination, record, type EgressContext } from './context.ts'
import {
  dnsCode,
  dnsType,
  dnsTypeName,
  encodeDnsAnswer,
  encodeDnsFault,
  parseDnsQuery,
} from './dns-message.ts'

/** Names whose address can be told again for the tripwire's records. */
const maxRemembered = 4096
const tcpIdleMs = 10_000
/** Denied names recorded in full; those after them by their last label, so that a flood of new ones is counted, not kept. */
const maxNamed = 2000
const port = 53
const internet = 1

export class DnsListener {
  readonly #context: EgressContext
  readonly #names = new Map<string, string>()
  readonly #denied = new Set<string>()

  constructor(context: EgressContext) {
    this.#context = context
  }

  /** The allowed name that was given this address, as far back as is remembered. */
  nameOf(address: string): string | null {
    return this.#names.get(address) ?? null
  }

  serveUdp(socket: UdpSocket, message: Buffer, from: RemoteInfo): void {
    const answer = this.#answer(message, null)
    if (answer !== null) socket.send(answer, from.port, from.address, () => undefined)
  }

  /** Messages in frames of a two-byte length, any number on one connection. */
  serveTcp(socket: Socket): void {
    const address = destination(socket)
    let pending: Buffer = Buffer.alloc(0)
    let asked = false
    socket.once('close', () => {
      if (asked) return
      const attempt = { protocol: 'dns', host: null, address, port } as const
      try {
        record(this.#context, attempt, deny('dns_query'), 'no query')
      } catch {
        // the log has failed, and its owner knows
      }
    })
    socket.setTimeout(tcpIdleMs, () => socket.destroy())
    socket.on('end', () => socket.end())
    socket.on('data', (chunk: Buffer) => {
      pending = Buffer.concat([pending, chunk])
      try {
        while (pending.length >= 2 && pending.length >= 2 + pending.readUInt16BE(0)) {
          const end = 2 + pending.readUInt16BE(0)
          asked = true
          const answer = this.#answer(pending.subarray(2, end), address)
          pending = pending.subarray(end)
          if (answer === null) throw new Error('no DNS message')
          const length = Buffer.alloc(2)
          length.writeUInt16BE(answer.length)
          socket.write(Buffer.concat([length, answer]))
        }
      } catch {
        socket.destroy()
      }
      // One who asks without reading the answers is made to wait.
      if (socket.writableNeedDrain && !socket.isPaused()) {
        socket.pause()
        socket.once('drain', () => socket.resume())
      }
    })
  }

  #answer(message: Buffer, address: string | null): Buffer | null {
    const query = parseDnsQuery(message)
    if (query === null) {
      const attempt = { protocol: 'dns', host: null, address, port } as const
      const bytes = message.toString('hex', 0, 64)
      record(this.#context, attempt, deny('dns_query'), `no query: first bytes ${bytes}`)
      return encodeDnsFault(message)
    }
    const name = parseHost(query.name)
    const decision = decide(this.#context.policy, { kind: 'dns', name })
    const host = name.ok ? name.host : printable(query.name, 512)
    const shown = decision.action === 'deny' ? this.#folded(host) : host
    const attempt = { protocol: 'dns', host: shown, address, port } as const
    record(this.#context, attempt, decision, dnsTypeName(query.type))
    if (decision.action === 'deny' || !name.ok) {
      const words = `closedbook: ${decision.reason}`
      return encodeDnsAnswer(query, { code: dnsCode.nameError, prohibited: words })
    }
    // Anything but an IPv4 address: the name exists, and has no such record.
    if (query.type !== dnsType.A || query.class !== internet) {
      return encodeDnsAnswer(query, { code: dnsCode.ok })
    }
    return encodeDnsAnswer(query, { code: dnsCode.ok, address: this.#addressOf(name.host) })
  }

  #folded(host: string): string {
    if (this.#context.audit.canary || this.#denied.has(host)) return host
    if (this.#denied.size >= maxNamed) return `*.${host.slice(host.lastIndexOf('.') + 1)}`
    this.#denied.add(host)
    return host
  }

  /** The same for a name always, also after a restart; two names may share one, since the address decides nothing. */
  #addressOf(host: string): string {
    const digest = createHash('sha256').update(host).digest()
    const low = (digest.readUInt16BE(0) % 0xfffe) + 1
    const address = `198.${18 + (digest.readUInt8(2) & 1)}.${low >> 8}.${low & 0xff}`
    if (this.#names.size < maxRemembered) this.#names.set(address, host)
    return address
  }
}
