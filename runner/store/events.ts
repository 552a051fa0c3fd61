/** What happened to jobs, for people who look later: appended, never changed, never needed to go on. */
import type { Sql } from './database.ts'

export type EventKind =
  | 'planned'
  | 'resumed'
  | 'paused'
  | 'cancelled'
  | 'finished'
  | 'claimed'
  | 'ended'
  | 'recorded'
  | 'superseded'
  | 'lost'
  | 'void-retried'
  | 'budget-raised'

export interface StoreEvent {
  readonly kind: EventKind
  readonly job?: string
  readonly trial?: string
  readonly execution?: string
  readonly worker?: string | null
  readonly body?: object
}

export async function addEvent(sql: Sql, event: StoreEvent): Promise<void> {
  await sql.rows(
    `insert into closedbook.events (kind, job, trial, execution, worker, body) values ($1, $2, $3, $4, $5, $6)`,
    [
      event.kind,
      event.job ?? null,
      event.trial ?? null,
      event.execution ?? null,
      event.worker ?? null,
      JSON.stringify(event.body ?? {}),
    ],
  )
}
