/**
 * `/metrics` in Prometheus' text format. Counters go on after their lease has closed: what each lease came to is added
 * to a base when it ends. Nothing here names a trial or a host, so the number of series is fixed.
 */
import type { Lease } from '../lease/lease.ts'
import type { Leases } from '../lease/leases.ts'
import { leaseStates, type Usage } from '../protocol/lease.ts'
import { gpuStates, type GpuReport } from '../protocol/gpu.ts'
import type { PtyCounts } from '../pty/ptys.ts'
import { packageVersion } from '../protocol/version.ts'

export interface MetricsDeps {
  readonly leases: Pick<Leases, 'list'>
  readonly gpus: () => GpuReport
  readonly refusals: () => ReadonlyMap<string, number>
  readonly board: () => { documents: number; bytes: number }
  /** Of the artifact cache. */
  readonly cache?: () => Readonly<Record<string, number>>
  readonly ptys?: () => Promise<PtyCounts>
  /** Sockets of numbered streams. */
  readonly streams?: () => { readonly open: number; readonly stalled: number }
}

interface Totals {
  denied: number
  byReason: Map<string, number>
  calls: number
  refusedCalls: number
  failedCalls: number
  inputTokens: number
  outputTokens: number
  costUsd: number
}

const lookMs = 1_000

export class Metrics implements Disposable {
  readonly #deps: MetricsDeps
  readonly #base = noTotals()
  readonly #open = new Map<string, Lease>()
  readonly #looking: NodeJS.Timeout
  #opened = 0

  constructor(deps: MetricsDeps) {
    this.#deps = deps
    this.#looking = setInterval(() => this.#look(), lookMs)
    this.#looking.unref()
  }

  async text(): Promise<string> {
    const { gpus, refusals, board, cache, ptys, streams } = this.#deps
    const terminals = await ptys?.()
    this.#look()
    const states = counted([...this.#open.values()].map(({ state }) => state))
    const totals = this.#totals()
    const lines = [
      ...family('closedbook_info', 'gauge', 'version of the daemon', {
        [`version="${packageVersion}"`]: 1,
      }),
      ...family(
        'closedbook_leases',
        'gauge',
        'open leases by state',
        labelled('state', leaseStates.slice(0, -1), states),
      ),
      ...family('closedbook_leases_opened_total', 'counter', 'leases seen since the start', {
        '': this.#opened,
      }),
      ...family(
        'closedbook_egress_attempts_total',
        'counter',
        'attempts to reach anything, by the reason of what was decided',
        labelled('reason', [...totals.byReason.keys()], totals.byReason),
      ),
      ...family('closedbook_egress_denied_total', 'counter', 'attempts that were refused', {
        '': totals.denied,
      }),
      ...family('closedbook_model_calls_total', 'counter', 'calls of the model gateway', {
        'end="answered"': totals.calls,
        'end="refused"': totals.refusedCalls,
        'end="failed"': totals.failedCalls,
      }),
      ...family('closedbook_model_tokens_total', 'counter', 'tokens metered by the model gateway', {
        'direction="input"': totals.inputTokens,
        'direction="output"': totals.outputTokens,
      }),
      ...family('closedbook_model_cost_usd_total', 'counter', 'cost of these calls in US dollars', {
        '': totals.costUsd,
      }),
      ...family(
        'closedbook_gpus',
        'gauge',
        'GPUs of the host by state',
        labelled('state', gpuStates, counted(gpus().gpus.map(({ state }) => state))),
      ),
      ...family(
        'closedbook_auth_refused_total',
        'counter',
        'requests that were refused at the door, by code',
        labelled('code', [...refusals().keys()], refusals()),
      ),
      ...family('closedbook_board_documents', 'gauge', 'documents of the board', {
        '': board().documents,
      }),
      ...family('closedbook_board_bytes', 'gauge', 'bytes of these', { '': board().bytes }),
      ...(cache === undefined
        ? []
        : family(
            'closedbook_artifact_cache',
            'gauge',
            'the cache of model artifacts',
            quoted('what', cache()),
          )),
      ...(terminals === undefined ? [] : ptyFamilies(terminals)),
      ...(streams === undefined
        ? []
        : [
            ...family('closedbook_stream_sockets', 'gauge', 'WebSockets on events and steps', {
              '': streams().open,
            }),
            ...family(
              'closedbook_stream_sockets_stalled_total',
              'counter',
              'of these, cut because they took nothing',
              { '': streams().stalled },
            ),
          ]),
      ...family('process_resident_memory_bytes', 'gauge', 'memory of the daemon', {
        '': process.memoryUsage.rss(),
      }),
      ...family('process_cpu_seconds_total', 'counter', 'CPU time of the daemon', {
        '': cpuSeconds(),
      }),
    ]
    return `${lines.join('\n')}\n`
  }

  [Symbol.dispose](): void {
    clearInterval(this.#looking)
  }

  /** What has closed since the last look goes to the base. */
  #look(): void {
    for (const lease of this.#deps.leases.list())
      if (!this.#open.has(lease.id)) {
        this.#open.set(lease.id, lease)
        this.#opened += 1
      }
    for (const [id, lease] of this.#open)
      if (lease.state === 'closed') {
        add(this.#base, lease)
        this.#open.delete(id)
      }
  }

  #totals(): Totals {
    const totals = { ...this.#base, byReason: new Map(this.#base.byReason) }
    for (const lease of this.#open.values()) add(totals, lease)
    return totals
  }
}

function ptyFamilies(counts: PtyCounts): string[] {
  const { running, attachments, opened, attached, programBytes, sentBytes } = counts
  const one = (name: string, type: 'gauge' | 'counter', help: string, value: number): string[] =>
    family(`closedbook_${name}`, type, help, { '': value })
  return [
    ...family('closedbook_ptys', 'gauge', 'running terminals, by role', quoted('role', running)),
    ...one('ptys_opened_total', 'counter', 'terminals that were opened', opened),
    ...one('pty_attachments', 'gauge', 'sockets of those who look on', attachments),
    ...one('pty_attachments_total', 'counter', 'times that somebody attached', attached),
    ...one('pty_program_bytes_total', 'counter', 'bytes that programs put out', programBytes),
    ...one('pty_sent_bytes_total', 'counter', 'bytes sent to those who look on', sentBytes),
    ...one('pty_snapshots_total', 'counter', 'screens sent in place of output', counts.snapshots),
    ...one('pty_gaps_total', 'counter', 'times that a slow viewer lost its place', counts.gaps),
    ...one('pty_gap_bytes_total', 'counter', 'bytes that viewers missed by that', counts.gapBytes),
    ...one('pty_refused_total', 'counter', 'input and control that was refused', counts.refused),
    ...one(
      'pty_unrecorded_bytes_total',
      'counter',
      'bytes that recordings lack: beyond their limit, or the disk was full',
      counts.unrecordedBytes,
    ),
  ]
}

const noTotals = (): Totals => ({
  denied: 0,
  byReason: new Map(),
  calls: 0,
  refusedCalls: 0,
  failedCalls: 0,
  inputTokens: 0,
  outputTokens: 0,
  costUsd: 0,
})

function add(totals: Totals, lease: Lease): void {
  const { denied, byReason } = lease.parts.audit.totals()
  totals.denied += denied
  for (const [reason, count] of Object.entries(byReason))
    totals.byReason.set(reason, (totals.byReason.get(reason) ?? 0) + count)
  const usage = usageOf(lease)
  if (usage === null) return
  for (const key of [
    'calls',
    'refusedCalls',
    'failedCalls',
    'inputTokens',
    'outputTokens',
    'costUsd',
  ] as const)
    totals[key] += usage[key]
}

function usageOf(lease: Lease): Usage | null {
  try {
    return lease.usage()
  } catch {
    // it has no gateway any more
    return null
  }
}

function counted(values: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1)
  return counts
}

const labelled = (
  label: string,
  values: readonly string[],
  counts: ReadonlyMap<string, number>,
): Record<string, number> =>
  Object.fromEntries(values.map((value) => [`${label}="${value}"`, counts.get(value) ?? 0]))

const quoted = (label: string, values: Readonly<Record<string, number>>): Record<string, number> =>
  Object.fromEntries(Object.entries(values).map(([key, value]) => [`${label}="${key}"`, value]))

function family(
  name: string,
  type: 'gauge' | 'counter',
  help: string,
  samples: Readonly<Record<string, number>>,
): string[] {
  const lines = Object.entries(samples).map(([labels, value]) =>
    labels === '' ? `${name} ${value}` : `${name}{${labels}} ${value}`,
  )
  return lines.length === 0 ? [] : [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines]
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}
