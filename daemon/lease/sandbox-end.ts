/**
 * What breaks because a sandbox ended under it (a removed container, an agent that ended PID 1 where it may) is told
 * as `container_gone`, whatever it broke on first: a namespace, a control group, a file of the process table. Faults
 * that say what they are pass through.
 */
import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Engine } from '../engine/engine.ts'
import { EngineError, LeaseError } from '../errors.ts'

const dyingMs = 1_500
const pollMs = 50

export interface Sandbox {
  readonly lease: string
  readonly container: string
  readonly pid: number
  readonly engine: Engine
}

export async function orGone<T>(sandbox: () => Sandbox, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (saysWhatItIs(error)) throw error
    const end = await endOf(sandbox())
    if (end === null) throw error
    throw new EngineError(
      'container_gone',
      'infra',
      `the sandbox of lease ${sandbox().lease} has ended by itself${end.oomKilled ? ', out of memory' : ''}`,
      { cause: error },
    )
  }
}

/** A command that failed in the namespace (`seal_failed`) may have failed because there is none any more. */
const saysWhatItIs = (error: unknown): boolean =>
  error instanceof EngineError || (error instanceof LeaseError && error.code !== 'seal_failed')

/** Null when the sandbox lives. A dying one is waited for: engine and kernel don't notice at the same time. */
async function endOf({ engine, container, pid }: Sandbox): Promise<{ oomKilled: boolean } | null> {
  const deadline = performance.now() + dyingMs
  for (;;) {
    const { status, oomKilled } = await engine.inspectContainer(container)
    if (status !== 'running' || !existsSync(`/proc/${pid}/ns/net`)) return { oomKilled }
    if (performance.now() >= deadline) return null
    await sleep(pollMs)
  }
}
