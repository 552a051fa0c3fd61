/**
 * Which leases belong to which trial, so that nobody has to read every record for it: one line a lease in an
 * append-only file, all of it in memory. It is made from the journal's records and never knows better than they do:
 * what a crash kept from it is read from the records again, and what is no more in the journal is left out.
 */
import { appendFile, readFile } from 'node:fs/promises'
import { z } from 'zod'

const lineSchema = z.strictObject({
  lease: z.string(),
  trial: z.string().nullable(),
  createdAt: z.string(),
})
export type IndexedLease = z.infer<typeof lineSchema>

export class TrialIndex {
  readonly #file: string
  readonly #leases = new Map<string, IndexedLease>()
  readonly #byTrial = new Map<string, Set<string>>()
  readonly #watchers = new Set<(lease: IndexedLease) => void>()

  private constructor(file: string) {
    this.#file = file
  }

  /** `missing` is asked for what the file lacks of the leases that there are. */
  static async open(
    file: string,
    present: ReadonlySet<string>,
    missing: (lease: string) => Promise<IndexedLease | null>,
    rewrite: (file: string, text: string) => Promise<void>,
  ): Promise<TrialIndex> {
    const index = new TrialIndex(file)
    const text = await readFile(file, 'utf8').catch(() => '')
    const lines = text.split('\n')
    let dropped = lines.pop() === '' ? 0 : 1
    for (const line of lines) {
      const found = parse(line)
      if (found === null || !present.has(found.lease) || index.#leases.has(found.lease))
        dropped += 1
      if (found !== null && present.has(found.lease)) index.#take(found)
    }
    const added: IndexedLease[] = []
    for (const lease of present) {
      if (index.#leases.has(lease)) continue
      const found = await missing(lease)
      if (found === null) continue
      index.#take(found)
      added.push(found)
    }
    if (dropped > 0) await rewrite(file, index.#text(index.#leases.values()))
    else if (added.length > 0) await appendFile(file, index.#text(added), { mode: 0o600 })
    return index
  }

  /** Does nothing for a lease that it has. */
  async add(lease: IndexedLease): Promise<void> {
    const known = this.#leases.get(lease.lease)
    if (known?.trial === lease.trial && known.createdAt === lease.createdAt) return
    this.#take(lease)
    for (const tell of this.#watchers) tell(lease)
    await appendFile(this.#file, this.#text([lease]), { mode: 0o600 })
  }

  /** Oldest first. */
  ofTrial(trial: string): string[] {
    return this.#ordered(this.#byTrial.get(trial) ?? [])
  }

  get(lease: string): IndexedLease | undefined {
    return this.#leases.get(lease)
  }

  /** Oldest first. */
  all(): string[] {
    return this.#ordered(this.#leases.keys())
  }

  /** Tells of each lease that is added from now on. */
  watch(tell: (lease: IndexedLease) => void): Disposable {
    this.#watchers.add(tell)
    return { [Symbol.dispose]: () => void this.#watchers.delete(tell) }
  }

  #take(lease: IndexedLease): void {
    const before = this.#leases.get(lease.lease)
    // An id that was opened again belongs to its last trial.
    if (before?.trial != null) this.#byTrial.get(before.trial)?.delete(lease.lease)
    this.#leases.set(lease.lease, lease)
    if (lease.trial === null) return
    const leases = this.#byTrial.get(lease.trial)
    if (leases === undefined) this.#byTrial.set(lease.trial, new Set([lease.lease]))
    else leases.add(lease.lease)
  }

  #ordered(leases: Iterable<string>): string[] {
    const at = (lease: string): string => this.#leases.get(lease)?.createdAt ?? ''
    return [...leases].toSorted((a, b) => (at(a) < at(b) ? -1 : at(a) > at(b) ? 1 : 0))
  }

  #text(leases: Iterable<IndexedLease>): string {
    return [...leases].map((lease) => `${JSON.stringify(lease)}\n`).join('')
  }
}

function parse(line: string): IndexedLease | null {
  try {
    return lineSchema.parse(JSON.parse(line))
  } catch {
    return null
  }
}
