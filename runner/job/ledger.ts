/**
 * `ledger.jsonl` of a job: what was started, how it ended, what was recorded, one JSON line each. A copy of what the
 * store has, for those who read the job's directory without one: reports, logs, a directory that was copied elsewhere.
 * The store is the truth; a line that was torn by a crash is passed over, and the next resume appends what is missing.
 */
import { open, readFile } from 'node:fs/promises'
import { z } from 'zod'
import { systemCode } from '../errors.ts'
import { writeError } from '../json-file.ts'
import { blames, reasonSchema, verdicts } from '../result.ts'

const base = { v: z.literal(1), time: z.iso.datetime(), trial: z.string() }

export const ledgerRecordSchema = z.discriminatedUnion('type', [
  z.strictObject({
    ...base,
    type: z.literal('started'),
    execution: z.string(),
    /** Leases that this execution may open; chosen before they exist, so that a crash leaves none unknown. */
    leases: z.array(z.string()),
  }),
  z.strictObject({
    ...base,
    type: z.literal('ended'),
    execution: z.string(),
    blame: z.enum(blames).nullable(),
    reason: reasonSchema,
  }),
  z.strictObject({
    ...base,
    type: z.literal('recorded'),
    execution: z.string(),
    verdict: z.enum(verdicts),
    /** Relative to the job's directory. */
    result: z.string(),
    digest: z.string(),
  }),
])
export type LedgerRecord = z.infer<typeof ledgerRecordSchema>

/** Lines are appended whole, by several processes if need be. */
export async function appendLedger(path: string, records: readonly LedgerRecord[]): Promise<void> {
  if (records.length === 0) return
  const text = records.map((record) => `${JSON.stringify(record)}\n`).join('')
  try {
    await using file = await open(path, 'a+', 0o644)
    const { size } = await file.stat()
    const last = Buffer.alloc(1)
    if (size > 0) await file.read(last, 0, 1, size - 1)
    await file.appendFile(size > 0 && last[0] !== 0x0a ? `\n${text}` : text)
  } catch (error) {
    throw writeError(path, error)
  }
}

/** Two records say the same of the same moment in a trial's life. */
export const ledgerKey = (record: LedgerRecord): string =>
  `${record.type} ${record.trial} ${record.execution}`

export async function readLedger(path: string): Promise<{ records: LedgerRecord[] }> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return ''
    throw error
  })
  return { records: text.split('\n').flatMap(parseLine) }
}

function parseLine(line: string): LedgerRecord[] {
  if (line === '') return []
  try {
    const parsed = ledgerRecordSchema.safeParse(JSON.parse(line))
    return parsed.success ? [parsed.data] : []
  } catch {
    return []
  }
}
