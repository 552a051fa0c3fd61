/**
 * What the daemon must not forget: one JSON file a lease, written (and synced) before the object that it describes
 * is made, and replaced whole at each change of state. Closed leases move to `closed/`, so that their audit can be
 * found by trial (trial-index.ts) for as long as an operator keeps them. Secrets of a request never come here.
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
import { TrialIndex, type IndexedLease } from './trial-index.ts'

const recordSchema = z.strictObject({
  v: z.literal(1),
  lease: z.string(),
  instance: z.string(),
  state: z.enum(leaseStates),
  reason: z.string().nullable(),
  /** Without `model`: it carries a key, and a gateway isn't adopted. Of `env` the names alone. */
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
  /** A person did something in it: for ever, whatever restarts. */
  assisted: z.boolean().default(false),
})
export type LeaseRecord = z.infer<typeof recordSchema>

export class Journal {
  /** Of all leases, open or closed. */
  readonly index: TrialIndex
  readonly #open: string
  readonly #closed: string

  private constructor(directories: { open: string; closed: string }, index: TrialIndex) {
    this.#open = directories.open
    this.#closed = directories.closed
    this.index = index
  }

  get closedDirectory(): string {
    return this.#closed
  }

  static async open(directory: string): Promise<Journal> {
    const directories = {
      open: path.join(directory, 'open'),
      closed: path.join(directory, 'closed'),
    }
    const present = new Set<string>()
    for (const each of Object.values(directories)) {
      await mkdir(each, { recursive: true, mode: 0o700 })
      for (const name of await readdir(each))
        if (name.endsWith('.json')) present.add(path.basename(name, '.json'))
    }
    const index = await TrialIndex.open(
      path.join(directory, 'trials.jsonl'),
      present,
      async (lease) => {
        const record = await readRecord(directories, lease)
        return record === null ? null : indexed(record)
      },
      writeDurably,
    )
    return new Journal(directories, index)
  }

  async write(record: LeaseRecord): Promise<void> {
    await Promise.all([
      this.index.add(indexed(record)),
      writeDurably(path.join(this.#open, `${record.lease}.json`), JSON.stringify(record)),
    ])
  }

  /** Of a lease, open or closed; null where there is none, or none that can be read. */
  async read(lease: string): Promise<LeaseRecord | null> {
    return readRecord({ open: this.#open, closed: this.#closed }, lease)
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
      const parsed = recordSchema.safeParse(jsonOrNull(await readFile(file, 'utf8')))
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
    return this.index.ofTrial(trial)
  }
}

const indexed = ({ lease, request, createdAt }: LeaseRecord): IndexedLease => ({
  lease,
  trial: request.trial ?? null,
  createdAt,
})

function jsonOrNull(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

async function readRecord(
  directories: { readonly open: string; readonly closed: string },
  lease: string,
): Promise<LeaseRecord | null> {
  // It may move to closed/ between the two.
  for (const directory of [directories.open, directories.closed])
    try {
      const text = await readFile(path.join(directory, `${lease}.json`), 'utf8')
      return recordSchema.parse(JSON.parse(text))
    } catch {
      // looked for in the other, or told by openRecords
    }
  return null
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
