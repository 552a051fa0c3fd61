/**
 * `ledger.jsonl` of a job: what was started, how it ended, what was recorded. Append-only, one line and one flush for
 * each record, and `append` resolves when the line is on disk: whoever starts an execution has its record first. A
 * torn last line is a record that nobody was told of; it is cut off. One Ledger is open on a job at a time.
 */
import { open, readFile, stat, truncate, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { RunnerError, systemCode } from '../errors.ts'
import { syncDirectory, writeError } from '../json-file.ts'
import { blames, reasonSchema, verdicts } from '../result.ts'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { JobLock, type LockHolder } from './job-lock.ts'
import { foldTrial, type TrialState } from './trial-state.ts'

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
type Unstamped<T> = T extends unknown ? Omit<T, 'v' | 'time'> : never
export type LedgerEntry = Unstamped<LedgerRecord>

export class Ledger implements AsyncDisposable {
  readonly #lock: JobLock
  readonly #file: FileHandle
  readonly #path: string
  readonly #clock: () => Date
  readonly #records: LedgerRecord[]
  /** Executions that this process started; any other without an end is dead. */
  readonly #own = new Set<string>()
  #tail: Promise<unknown> = Promise.resolve()
  #broken: RunnerError | null = null

  private constructor(
    lock: JobLock,
    file: FileHandle,
    path: string,
    records: LedgerRecord[],
    clock: () => Date,
  ) {
    this.#lock = lock
    this.#file = file
    this.#path = path
    this.#records = records
    this.#clock = clock
  }

  /** Throws `job_locked` when another process works on the job, `ledger_corrupt` when a whole line can't be read. */
  static async open(dir: string, clock: () => Date = () => new Date()): Promise<Ledger> {
    await using undo = new AsyncDisposableStack()
    const lock = undo.use(await JobLock.acquire(dir))
    const path = join(dir, 'ledger.jsonl')
    const { records, wholeBytes } = await readLedger(path)
    try {
      const size = await stat(path).then(
        (facts) => facts.size,
        () => null,
      )
      if (size !== null && size > wholeBytes) await truncate(path, wholeBytes)
      const file = undo.use(await open(path, 'a', 0o644))
      await file.sync()
      await syncDirectory(dir)
      undo.move()
      return new Ledger(lock, file, path, records, clock)
    } catch (error) {
      throw writeError(path, error)
    }
  }

  get takenOverFrom(): LockHolder | null {
    return this.#lock.takenOverFrom
  }

  get records(): readonly LedgerRecord[] {
    return this.#records
  }

  started(trial: string, execution: string, leases: readonly string[]): Promise<void> {
    this.#own.add(execution)
    return this.#append({ type: 'started', trial, execution, leases: [...leases] })
  }

  ended(entry: Omit<Extract<LedgerEntry, { type: 'ended' }>, 'type'>): Promise<void> {
    return this.#append({ type: 'ended', ...entry })
  }

  recorded(entry: Omit<Extract<LedgerEntry, { type: 'recorded' }>, 'type'>): Promise<void> {
    return this.#append({ type: 'recorded', ...entry })
  }

  state(trial: string): TrialState {
    return foldTrial(trial, this.#records, this.#own)
  }

  /** In order; after a failed write nothing more is accepted, since what is on disk is no longer known. */
  #append(entry: LedgerEntry): Promise<void> {
    const write = this.#tail.then(async () => {
      if (this.#broken !== null) throw this.#broken
      const record = ledgerRecordSchema.parse({ v: 1, time: this.#clock().toISOString(), ...entry })
      try {
        await this.#file.appendFile(`${JSON.stringify(record)}\n`)
        await this.#file.datasync()
      } catch (error) {
        this.#broken = writeError(this.#path, error)
        throw this.#broken
      }
      this.#records.push(record)
    })
    this.#tail = write.catch(() => {})
    return write
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tail
    await using _lock = this.#lock
    await this.#file.close().catch(() => {})
  }
}

/** For readers without the lock (`ps`, `report`): what is on disk now, a torn last line left out. */
export async function readLedger(
  path: string,
): Promise<{ records: LedgerRecord[]; wholeBytes: number }> {
  const bytes = await readFile(path).catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return Buffer.alloc(0)
    throw error
  })
  const wholeBytes = bytes.lastIndexOf(0x0a) + 1
  const lines = bytes.subarray(0, wholeBytes).toString('utf8').split('\n').slice(0, -1)
  const records = lines.map((line, index) => parseLine(path, line, index + 1))
  return { records, wholeBytes }
}

function parseLine(path: string, line: string, number: number): LedgerRecord {
  let why: string
  try {
    const parsed = ledgerRecordSchema.safeParse(JSON.parse(line))
    if (parsed.success) return parsed.data
    why = zodMessage(parsed.error)
  } catch {
    why = 'not JSON'
  }
  throw new RunnerError(
    'ledger_corrupt',
    'operator',
    `${path} line ${number}: ${why}. Results in trials/ are untouched; restore the file from a backup, or start a new job`,
    { facts: { path, line: number } },
  )
}
