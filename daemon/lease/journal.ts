/**
 * What the daemon must not forget: one JSON file a lease, written (and synced) before the object that it describes
 * is made, and replaced whole at each change of state. Closed leases move to `closed/`, so that their audit can be
 * found by trial for as long as an operator keeps them. Secrets of a request never come here.
 */
import { randomUUID } from 'node:crypto'
import { mkdir, open, readFile, readdir, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { HostError } from '../errors.ts'
import {
  canaryResultSchema,
  freezeReportSchema,
  leaseRequestSchema,
  leaseStates,
} from '../protocol/lease.ts'

const recordSchema = z.strictObject({
  v: z.literal(1),
  lease: z.string(),
  instance: z.string(),
  state: z.enum(leaseStates),
  reason: z.string().nullable(),
  /** Without `model`: it carries a key, and a gateway isn't adopted. */
  request: leaseRequestSchema.omit({ model: true }),
  hadModel: z.boolean(),
  container: z.string().nullable(),
  gpus: z.array(z.strictObject({ uuid: z.string(), name: z.string() })).default([]),
  /** Device numbers of the GPUs' nodes in the container, as they were before the agent. */
  gpuNodes: z.array(z.string()).default([]),
  createdAt: z.string(),
  expiresAt: z.string(),
  proof: z.strictObject({
    before: z.array(canaryResultSchema),
    after: z.array(canaryResultSchema),
  }),
  /** What was read when it was frozen; what it was read from is gone by then. */
  freeze: freezeReportSchema.nullable().default(null),
})
export type LeaseRecord = z.infer<typeof recordSchema>

export class Journal {
  readonly #open: string
  readonly #closed: string

  private constructor(directory: string) {
    this.#open = path.join(directory, 'open')
    this.#closed = path.join(directory, 'closed')
  }

  static async open(directory: string): Promise<Journal> {
    const journal = new Journal(directory)
    await mkdir(journal.#open, { recursive: true, mode: 0o700 })
    await mkdir(journal.#closed, { recursive: true, mode: 0o700 })
    return journal
  }

  async write(record: LeaseRecord): Promise<void> {
    await writeDurably(path.join(this.#open, `${record.lease}.json`), JSON.stringify(record))
  }

  async close(record: LeaseRecord): Promise<void> {
    await this.write(record)
    await rename(
      path.join(this.#open, `${record.lease}.json`),
      path.join(this.#closed, `${record.lease}.json`),
    )
  }

  /** Leases that were not closed when the last daemon ended. Torn or foreign files are an error: nothing is guessed. */
  async openRecords(): Promise<LeaseRecord[]> {
    const records: LeaseRecord[] = []
    for (const name of await readdir(this.#open)) {
      const file = path.join(this.#open, name)
      if (name.endsWith('.tmp')) {
        await rm(file, { force: true })
        continue
      }
      const parsed = recordSchema.safeParse(JSON.parse(await readFile(file, 'utf8')))
      if (!parsed.success)
        throw new HostError(
          'journal_corrupt',
          'operator',
          `${file} is not a lease record of this version; move it away and start the daemon again`,
          { cause: parsed.error },
        )
      records.push(parsed.data)
    }
    return records
  }

  /** Ids of leases, open or closed, that belong to a trial; newest last. */
  async leasesOfTrial(trial: string): Promise<string[]> {
    const found: { lease: string; createdAt: string }[] = []
    for (const directory of [this.#open, this.#closed])
      for (const name of await readdir(directory)) {
        if (!name.endsWith('.json')) continue
        try {
          const record = JSON.parse(
            await readFile(path.join(directory, name), 'utf8'),
          ) as LeaseRecord
          if (record.request.trial === trial) found.push(record)
        } catch {
          // moved to closed/ between the two reads
        }
      }
    return [
      ...new Set(
        found.toSorted((a, b) => a.createdAt.localeCompare(b.createdAt)).map(({ lease }) => lease),
      ),
    ]
  }
}

/** All of the new text or all of the old one, also after a power cut. */
export async function writeDurably(file: string, text: string): Promise<void> {
  const temporary = `${file}.${randomUUID()}.tmp`
  const handle = await open(temporary, 'wx', 0o600)
  try {
    await handle.writeFile(text)
    await handle.datasync()
  } finally {
    await handle.close()
  }
  await rename(temporary, file)
}
