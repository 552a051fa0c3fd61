/**
 * The sealed network of one container: the route, the rules and the listeners in its namespace, and the census.
 * Invariant: the listeners are the only way out, and they live in this process, so a dead daemon is a closed book.
 * It knows nothing of what the listeners serve.
 */
import type dgram from 'node:dgram'
import type net from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AuditEvent, AuditRecord } from '../../policy/audit-event.ts'
import { LeaseError } from '../errors.ts'
import { Census, readCensus, type CensusReading } from './census.ts'
import { listenInNamespace, runInNamespace, type ListenerSpec } from './namespace.ts'
import { flowTimeouts, ports, routeArguments, rules } from './rules.ts'

/** A datagram that has not been read by then was not kept. */
const drainMs = 20
const loopback = '127.0.0.1'
const everywhere = '0.0.0.0'

const always: readonly ListenerSpec[] = [
  { name: 'proxy', protocol: 'tcp', host: loopback, port: ports.proxy },
  { name: 'tls', protocol: 'tcp', host: everywhere, port: ports.tls },
  { name: 'http', protocol: 'tcp', host: everywhere, port: ports.http },
  { name: 'dnsTcp', protocol: 'tcp', host: everywhere, port: ports.dns },
  { name: 'dnsUdp', protocol: 'udp', host: everywhere, port: ports.dns },
  { name: 'tripwire', protocol: 'tcp', host: everywhere, port: ports.tripwire },
]

export interface SealOptions {
  readonly pid: number
  readonly model: boolean
  readonly huggingFace: boolean
  readonly exec: boolean
  /** Where census records go. */
  readonly onCensus: (record: AuditRecord) => void
  /** Census events already in the audit log of a lease that is adopted after a restart. */
  readonly adopted?: readonly AuditEvent[]
  readonly signal?: AbortSignal
}

export interface SealedListeners {
  readonly proxy: net.Server
  readonly tls: net.Server
  readonly http: net.Server
  readonly dnsTcp: net.Server
  readonly dnsUdp: dgram.Socket
  /** A few of the connections to other TCP ports ring here; the kernel refuses the rest. */
  readonly tripwire: net.Server
  readonly model: net.Server | null
  readonly huggingFace: net.Server | null
  readonly exec: net.Server | null
}

export class SealedNetwork implements AsyncDisposable {
  readonly pid: number
  readonly listeners: SealedListeners
  readonly #census = new Census()
  readonly #onCensus: (record: AuditRecord) => void
  #reading: Promise<void> | null = null
  #again = false
  /** DNS datagrams read, and those that the kernel had counted before this process listened. */
  #dnsSeen = 0
  #dnsBefore: number | null
  #closed = false

  private constructor(options: SealOptions, listeners: SealedListeners) {
    this.pid = options.pid
    this.listeners = listeners
    this.#onCensus = options.onCensus
    for (const event of options.adopted ?? []) this.#census.restore(event)
    this.#dnsBefore = options.adopted === undefined ? 0 : null
    listeners.dnsUdp.on('message', () => (this.#dnsSeen += 1))
    // The port was rewritten on the way here; only the census knows it, and how many more there were.
    listeners.tripwire.on('connection', () => void this.count().catch(() => {}))
  }

  static async open(options: SealOptions): Promise<SealedNetwork> {
    const { pid, adopted } = options
    const wait = options.signal === undefined ? {} : { signal: options.signal }
    const wanted = [...always]
    if (options.model)
      wanted.push({ name: 'model', protocol: 'tcp', host: loopback, port: ports.model })
    if (options.huggingFace)
      wanted.push({ name: 'huggingFace', protocol: 'tcp', host: loopback, port: ports.huggingFace })
    if (options.exec)
      wanted.push({ name: 'exec', protocol: 'tcp', host: loopback, port: ports.exec })
    const [opened] = await Promise.all([
      listenInNamespace(pid, wanted, wait),
      adopted === undefined ? layDown(pid, wait) : Promise.resolve(),
    ])
    const tcp = (name: string): net.Server => {
      const server = opened.tcp.get(name)
      if (server === undefined)
        throw new LeaseError('seal_failed', 'infra', `the ${name} listener did not arrive`)
      return server
    }
    const dnsUdp = opened.udp.get('dnsUdp')
    if (dnsUdp === undefined)
      throw new LeaseError('seal_failed', 'infra', 'the DNS listener did not arrive')
    return new SealedNetwork(options, {
      proxy: tcp('proxy'),
      tls: tcp('tls'),
      http: tcp('http'),
      dnsTcp: tcp('dnsTcp'),
      dnsUdp,
      tripwire: tcp('tripwire'),
      model: options.model ? tcp('model') : null,
      huggingFace: options.huggingFace ? tcp('huggingFace') : null,
      exec: options.exec ? tcp('exec') : null,
    })
  }

  /**
   * Reads the census and reports what is new. Calls that come while a reading is under way share one further
   * reading, so a flood of attempts costs a bounded number of them and loses no count.
   */
  async count(): Promise<void> {
    if (this.#closed) return
    if (this.#reading !== null) {
      this.#again = true
      await this.#reading
      return
    }
    this.#reading = this.#read()
    try {
      await this.#reading
    } finally {
      this.#reading = null
    }
  }

  async #read(): Promise<void> {
    do {
      this.#again = false
      const reading = await readCensus(this.pid)
      for (const record of this.#census.delta(reading)) this.#onCensus(record)
      for (const record of await this.#overrun(reading)) this.#onCensus(record)
    } while (this.#again && !this.#closed)
  }

  /** What is still in the socket's buffer has not been missed. */
  async #overrun(reading: CensusReading): Promise<AuditRecord[]> {
    this.#dnsBefore ??= reading.dnsQueries - this.#dnsSeen
    const before = this.#dnsBefore
    const missing = (): number => reading.dnsQueries - before - this.#dnsSeen
    for (let seen = -1; missing() > 0 && seen !== this.#dnsSeen; await sleep(drainMs))
      seen = this.#dnsSeen
    return this.#census.overrun(reading, before + this.#dnsSeen)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    await this.#reading?.catch(() => {})
    this.#closed = true
    const { dnsUdp, ...servers } = this.listeners
    for (const server of Object.values(servers)) server?.close()
    try {
      dnsUdp.close()
    } catch {
      // already closed by whoever served it
    }
  }
}

/** Both in one entry of the namespace; `ip` fails when the route is there already, and nothing is laid down twice. */
async function layDown(pid: number, options: { signal?: AbortSignal }): Promise<void> {
  const brief = Object.entries(flowTimeouts)
    .map(([name, seconds]) => `{ echo ${seconds} >/proc/sys/net/netfilter/${name}; } 2>/dev/null`)
    .join('; ')
  const script = `ip ${routeArguments.join(' ')} && nft -f - && { ${brief}; true; }`
  await runInNamespace(pid, ['sh', '-c', script], {
    ...options,
    input: rules,
  })
}
