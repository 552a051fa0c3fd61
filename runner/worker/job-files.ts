/**
 * What of the store is copied into a job's directory, so that it can be read without one: `result.json` of each trial,
 * and the lines of its ledger. Written after the store has it: a result on disk is a result that counts.
 */
import { existsSync } from 'node:fs'
import { createHash } from 'node:crypto'
import { readFile, rename } from 'node:fs/promises'
import path from 'node:path'
import { makeDirectory, writeFileAtomic } from '../json-file.ts'
import { ledgerFile, resultFile } from '../job/layout.ts'
import { appendLedger, ledgerKey, readLedger, type LedgerRecord } from '../job/ledger.ts'
import type { Plan } from '../job/plan.ts'
import type { TrialReason, TrialBlame, Verdict } from '../result.ts'
import type { Store } from '../store/store.ts'
import { executionsOf, resultsOf } from '../store/trials.ts'

const stamp = (time: string): { v: 1; time: string } => ({ v: 1, time })

export const logStarted = (
  jobDir: string,
  entry: { trial: string; execution: string; leases: readonly string[]; time: string },
): Promise<void> =>
  appendLedger(ledgerFile(jobDir), [
    {
      ...stamp(entry.time),
      type: 'started',
      trial: entry.trial,
      execution: entry.execution,
      leases: [...entry.leases],
    },
  ])

export const logEnded = (
  jobDir: string,
  entry: {
    trial: string
    execution: string
    blame: TrialBlame | null
    reason: TrialReason
    time: string
  },
): Promise<void> => {
  const { trial, execution, blame, reason, time } = entry
  return appendLedger(ledgerFile(jobDir), [
    { ...stamp(time), type: 'ended', trial, execution, blame, reason },
  ])
}

export async function writeRecorded(
  jobDir: string,
  row: { trial: string; execution: string; verdict: Verdict; digest: string; body: string },
  time: string,
): Promise<void> {
  const { records } = await readLedger(ledgerFile(jobDir))
  const record = recordedRecord(jobDir, row, time)
  await placeResult(jobDir, row)
  // another worker that shares the directory may have written it
  if (!records.some((one) => ledgerKey(one) === ledgerKey(record)))
    await appendLedger(ledgerFile(jobDir), [record])
}

/** The result of a void trial that was given another chance is kept beside the new one. */
async function keepEarlier(file: string): Promise<void> {
  for (let number = 1; ; number += 1) {
    const kept = path.join(path.dirname(file), `result.void-${number}.json`)
    if (existsSync(kept)) continue
    await rename(file, kept)
    return
  }
}

const recordedRecord = (
  jobDir: string,
  row: { trial: string; execution: string; verdict: Verdict; digest: string },
  time: string,
): LedgerRecord => ({
  ...stamp(time),
  type: 'recorded',
  trial: row.trial,
  execution: row.execution,
  verdict: row.verdict,
  result: path.relative(jobDir, resultFile(jobDir, row.trial)),
  digest: row.digest,
})

/** Writes what the store has and the directory lacks: after a crash, or of a worker elsewhere. */
export async function completeFiles(store: Store, plan: Plan, jobDir: string): Promise<void> {
  await makeDirectory(jobDir)
  const { records } = await readLedger(ledgerFile(jobDir))
  const known = new Set(records.map(ledgerKey))
  const missing: LedgerRecord[] = []
  const add = (record: LedgerRecord): void => {
    if (!known.has(ledgerKey(record))) missing.push(record)
  }
  const results = new Map(
    (await resultsOf(store.database, plan.job, [])).map((row) => [row.trial, row]),
  )
  for (const { trial } of plan.trials) {
    for (const one of await executionsOf(store.database, trial)) {
      const { execution, leases, startedAt, endedAt, blame, reason } = one
      add({ ...stamp(startedAt), type: 'started', trial, execution, leases: [...leases] })
      if (endedAt !== null && reason !== null)
        add({ ...stamp(endedAt), type: 'ended', trial, execution, blame, reason })
    }
    const row = results.get(trial)
    if (row === undefined) continue
    await placeResult(jobDir, row)
    add(recordedRecord(jobDir, row, row.recordedAt.toISOString()))
  }
  await appendLedger(ledgerFile(jobDir), missing)
}

async function placeResult(
  jobDir: string,
  row: { trial: string; digest: string; body: string },
): Promise<void> {
  const file = resultFile(jobDir, row.trial)
  const before = await readFile(file).catch(() => null)
  if (before !== null && digestOf(before) === row.digest) return
  if (before !== null) await keepEarlier(file)
  await writeFileAtomic(file, row.body)
}

const digestOf = (bytes: Uint8Array): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`
