/**
 * A trial as a daemon's board has it, for those who don't have its files: which one is meant, and its steps as they
 * were or as they come. The board keeps what runners have published beside that daemon, so that a trial of another
 * host can be read from here.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import { boardListSchema, type BoardList } from '../../daemon/protocol/board.ts'
import { silentSince } from '../../daemon/protocol/board-life.ts'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { RemoteError } from '../../daemon/protocol/errors.ts'
import type { FollowOptions } from '../../daemon/protocol/stream-client.ts'
import { understood } from '../../daemon/protocol/understood.ts'
import { RunnerError } from '../errors.ts'
import { stepSchema, type Step } from '../step-log.ts'

type Client = Pick<DaemonClient, 'call' | 'follow' | 'leases' | 'auditSummary'>

export interface PublishedTrial {
  readonly job: string
  readonly trial: string
}

export interface PublishedStep {
  readonly execution: string
  readonly step: Step
}

const standSchema = z.looseObject({ state: z.enum(['running', 'recorded']), execution: z.string() })
const plannedSchema = z.looseObject({
  job: z.string(),
  trials: z.array(z.looseObject({ trial: z.string() })),
})
const lookMs = 1_000
const lookForLifeMs = 15_000

/** By its id, the beginning of one, or one of its leases; null where the daemon knows of none. */
export async function findPublished(client: Client, text: string): Promise<PublishedTrial | null> {
  const published = await publishedTrials(client)
  const found = onlyOne(published, text)
  if (found !== undefined) return found
  const trial = await trialOfLease(client, text)
  return trial === null ? null : (published.find((one) => one.trial === trial) ?? null)
}

async function publishedTrials(client: Client): Promise<PublishedTrial[]> {
  const begun = (await list(client, 'trial')).entries.map(({ id }): PublishedTrial => {
    const at = id.indexOf('.')
    return { job: id.slice(0, at), trial: id.slice(at + 1) }
  })
  const planned = (await list(client, 'job', { full: 'true' })).entries.flatMap(({ document }) => {
    const job = plannedSchema.safeParse(document).data
    return job?.trials.map(({ trial }): PublishedTrial => ({ job: job.job, trial })) ?? []
  })
  const known = new Set(begun.map(({ trial }) => trial))
  return [...begun, ...planned.filter(({ trial }) => !known.has(trial))]
}

function onlyOne(published: readonly PublishedTrial[], text: string): PublishedTrial | undefined {
  const exact = published.find(({ trial }) => trial === text)
  if (exact !== undefined) return exact
  const begun = published.filter(({ trial }) => trial.startsWith(text))
  if (begun.length <= 1) return begun[0]
  throw new RunnerError(
    'usage',
    'operator',
    `${JSON.stringify(text)} is the beginning of ${begun.length} trials; write more of it`,
  )
}

async function trialOfLease(client: Client, text: string): Promise<string | null> {
  const open = (await client.leases()).find(({ lease }) => lease === text)
  if (open !== undefined) return open.trial
  if (!/^[a-z0-9]{12,32}$/.test(text)) return null
  const [closed] = await client.auditSummary(text).catch(() => [])
  return closed?.lease === text ? closed.trial : null
}

export interface ReadOptions extends Pick<FollowOptions, 'onState'> {
  readonly follow: boolean
  readonly signal: AbortSignal
  /** Once: the runner was not heard of since then, though its job has not ended. */
  readonly onSilence?: (since: string) => void
}

/** Of the newest execution; with `follow` until the trial is recorded, and of each execution that comes. */
export async function* publishedSteps(
  client: Client,
  trial: PublishedTrial,
  { follow, signal, onState, onSilence }: ReadOptions,
): AsyncGenerator<PublishedStep> {
  let execution = ''
  let next = 1
  while (!signal.aborted) {
    const stand = await standOf(client, trial, signal).catch((error: unknown) => {
      // it was there before, and comes back
      if (follow && execution !== '' && isUnreachable(error)) return null
      throw error
    })
    if (stand === null) {
      if (!follow) return
      await pause(lookMs, signal)
      continue
    }
    if (stand.execution !== execution) next = 1
    ;({ execution } = stand)
    const over = new AbortController()
    const last = !follow || stand.state === 'recorded'
    const looking = last
      ? null
      : lookOn(client, trial, { execution, over, signal, ...(onSilence && { onSilence }) })
    const either = AbortSignal.any([signal, over.signal])
    const steps = client.follow(`/v1/board/steps/${trial.job}.${trial.trial}.${execution}/lines`, {
      from: next,
      signal: either,
      toEnd: last,
      ...(onState && { onState }),
    })
    try {
      for await (const { n, data } of steps) {
        next = n + 1
        yield { execution, step: understood(stepSchema, data) }
      }
    } finally {
      over.abort()
      await looking
    }
    if (last) return
  }
}

/** Ends the reading when the trial has been recorded, or another execution has begun. */
async function lookOn(
  client: Client,
  trial: PublishedTrial,
  {
    execution,
    over,
    signal,
    onSilence,
  }: {
    readonly execution: string
    readonly over: AbortController
    readonly signal: AbortSignal
    readonly onSilence?: (since: string) => void
  },
): Promise<void> {
  const either = AbortSignal.any([signal, over.signal])
  let lookedForLife = performance.now()
  let told = false
  for (;;) {
    await pause(lookMs, either)
    if (either.aborted) return
    // one that is away is told of by the stream itself
    const stand = await standOf(client, trial, either).catch(() => undefined)
    if (stand === undefined) continue
    if (stand?.execution !== execution || stand.state === 'recorded') return over.abort()
    if (told || performance.now() - lookedForLife < lookForLifeMs) continue
    lookedForLife = performance.now()
    const since = await silence(client, trial).catch(() => null)
    told = since !== null
    if (since !== null) onSilence?.(since)
  }
}

async function standOf(
  client: Client,
  { job, trial }: PublishedTrial,
  signal: AbortSignal,
): Promise<z.infer<typeof standSchema> | null> {
  try {
    return understood(
      standSchema,
      await client.call('GET', `/v1/board/trial/${job}.${trial}`, { signal }),
    )
  } catch (error) {
    if (error instanceof RemoteError && error.code === 'not_found') return null
    throw error
  }
}

const isUnreachable = (error: unknown): boolean =>
  error instanceof RemoteError && error.code === 'daemon_unreachable'

async function silence(client: Client, { job }: PublishedTrial): Promise<string | null> {
  const lists = [
    await list(client, 'job', { prefix: job }),
    await list(client, 'trial', { prefix: `${job}.` }),
    await list(client, 'alive', { prefix: job }),
  ]
  const now = Math.max(...lists.map((one) => Date.parse(one.now ?? '')))
  const times = lists.flatMap(({ entries }) => entries.map(({ time }) => time))
  const last = times.toSorted().at(-1) ?? ''
  const signs = lists.at(-1)?.entries.length !== 0
  return Number.isNaN(now) ? null : silentSince({ last, signs }, now)
}

async function list(
  client: Client,
  kind: string,
  query: Record<string, string> = {},
): Promise<BoardList> {
  const text = new URLSearchParams(query).toString()
  const answer = await client.call('GET', `/v1/board/${kind}?${text}`)
  return understood(boardListSchema, answer)
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {})
}
