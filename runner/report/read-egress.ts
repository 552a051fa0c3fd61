/** What was refused, from the egress logs of a job's trials. A line that can't be read is counted, never fatal. */
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { z } from 'zod'
import { auditEventSchema } from '../../policy/audit-event.ts'
import { evidenceNames } from '../trial/evidence.ts'
import type { BlockedEvent } from './blocked.ts'

const { action, canary, kind, host, port, protocol, address, reason, trial, lease, count } =
  auditEventSchema.shape
const seenSchema = z.object({
  action,
  canary,
  kind,
  host,
  port,
  protocol,
  address,
  reason,
  trial,
  lease,
  count,
})

export interface TrialEvidence {
  readonly directory: string
  /** null: whatever lies there. */
  readonly executions: readonly string[] | null
}

export function readDenied(trials: readonly TrialEvidence[]): {
  readonly events: BlockedEvent[]
  readonly unreadable: number
} {
  const events: BlockedEvent[] = []
  let unreadable = 0
  for (const trial of trials)
    for (const file of egressFiles(trial))
      for (const line of linesOf(file)) {
        // Most lines are not denials, and none of those is a row.
        if (!line.includes('"deny"')) continue
        const event = parse(line)
        if (event === null) unreadable += 1
        else events.push(event)
      }
  return { events, unreadable }
}

function parse(line: string): BlockedEvent | null {
  try {
    const parsed = seenSchema.safeParse(JSON.parse(line))
    return parsed.success ? parsed.data : null
  } catch {
    return null
  }
}

function egressFiles({ directory, executions: known }: TrialEvidence): string[] {
  const executions = path.join(directory, 'executions')
  return (known ?? namesIn(executions)).map(
    (name) => `${executions}/${path.basename(name)}/${evidenceNames.egress}`,
  )
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}

/** Whole lines only: one that has no end yet is still being written. */
function linesOf(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').split('\n').slice(0, -1)
  } catch {
    return []
  }
}
