/**
 * A process that outlives the command which started it, known by pid and start time, so that a recycled pid is never
 * taken for it. `down` stops what such a record names, and nothing else.
 */
import { readFile } from 'node:fs/promises'
import { z } from 'zod'

export const processRecordSchema = z.strictObject({
  pid: z.int().positive(),
  /** Field 22 of /proc/<pid>/stat: clock ticks since boot. */
  startTime: z.string(),
})
export type ProcessRecord = z.infer<typeof processRecordSchema>

export async function recordOf(pid: number): Promise<ProcessRecord | null> {
  const startTime = await startTimeOf(pid)
  return startTime === null ? null : { pid, startTime }
}

async function startTimeOf(pid: number): Promise<string | null> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => null)
  if (stat === null) return null
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields[0] === 'Z' ? null : (fields[19] ?? null)
}

export async function isAlive({ pid, startTime }: ProcessRecord): Promise<boolean> {
  return (await startTimeOf(pid)) === startTime
}

/** SIGTERM, then SIGKILL when it has not ended in time. Resolves when it is gone. */
export async function stopProcess(record: ProcessRecord, graceMs: number): Promise<void> {
  if (!(await isAlive(record))) return
  process.kill(record.pid, 'SIGTERM')
  if (await goneWithin(record, graceMs)) return
  process.kill(record.pid, 'SIGKILL')
  await goneWithin(record, 5000)
}

async function goneWithin(record: ProcessRecord, limitMs: number): Promise<boolean> {
  const deadline = performance.now() + limitMs
  while (performance.now() < deadline) {
    if (!(await isAlive(record))) return true
    await new Promise((resolve) => setTimeout(resolve, 25))
  }
  return false
}
