/**
 * What a sandbox of a Harbor task gets before its agent or its tests: the log directories that scripts write to, the
 * image's entrypoint running, and a health check that succeeded. By commands of ours, which are no steps of the agent.
 */
import { ClosedbookError } from '../../daemon/protocol/errors.ts'
import { RunnerError } from '../errors.ts'
import type { Healthcheck, Task } from '../task/task.ts'
import { ownLabel } from '../step-log.ts'
import type { ExecutionContext } from './context.ts'
import { delay, type HeldLease } from './held-lease.ts'
import { capture, exitCodeOf, type Sandbox } from './sandbox.ts'
import { ownPlaces } from './script-places.ts'
import { snapshotBefore, type Before } from './snapshot.ts'
import { lastLines } from './trusted-git.ts'

const label = `${ownLabel}prepare`

export const needsPreparation = (task: Pick<Task, 'harbor' | 'healthcheck'>): boolean =>
  task.harbor || task.healthcheck !== null

/** Throws with blame `task` when the container never becomes healthy. */
export async function prepareSandbox(
  context: Pick<ExecutionContext, 'client' | 'task' | 'images' | 'signal'>,
  sandbox: HeldLease,
): Promise<void> {
  const { task, client, images, signal } = context
  const image = await client.inspectImage(images.task, { signal })
  const user = image.user === '' ? '0' : image.user
  if (task.harbor) {
    await makeLogDirectories(sandbox, signal)
    await startEntrypoint(sandbox, image.entrypoint, { user, workdir: image.workdir }, signal)
  }
  if (task.healthcheck !== null)
    await untilHealthy(sandbox, task.healthcheck, {
      user,
      workdir: task.workdir ?? (image.workdir === '' ? '/' : image.workdir),
      signal,
    })
}

/**
 * An entrypoint, or a health check, may have written files: they are not the agent's, and an attempt that did nothing
 * must not look like one that did something. Looked at only where there may be some and whole containers are graded; what
 * can't be read, because it is being written, counts as the agent's, as does all that is written later.
 */
export async function changedByBoot(
  context: Pick<ExecutionContext, 'client' | 'task' | 'images' | 'signal' | 'configuration'>,
  sandbox: HeldLease,
): Promise<Before | null> {
  const { task, client, images, configuration, signal } = context
  const whole = task.verify === 'snapshot' && task.snapshotOf === 'container'
  if (!whole || configuration.harness.kind === 'noop') return null
  const { entrypoint } = await client.inspectImage(images.task, { signal })
  if (entrypoint.length === 0 && task.healthcheck === null) return null
  try {
    const changes = await client.changes(sandbox.lease, { signal })
    return await snapshotBefore({ agent: sandbox, changes, own: ownPlaces, signal })
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof ClosedbookError) return null
    throw error
  }
}

export async function makeLogDirectories(
  sandbox: Sandbox,
  signal: AbortSignal | undefined,
): Promise<void> {
  const script =
    'mkdir -p /logs/agent /logs/verifier /logs/artifacts && chmod 777 /logs/agent /logs/verifier /logs/artifacts'
  const start = { argv: ['/bin/sh', '-c', script], user: '0', workdir: '/', label }
  const run = await capture(sandbox, start, { signal })
  if (exitCodeOf(run.end) !== 0)
    throw new RunnerError(
      'task_invalid',
      'task',
      `the image can't have the directories of Harbor's logs: ${lastLines(run.stderr)}`,
    )
}

/** As Harbor keeps it: with `sh -c "sleep infinity"` for its command, in the background, until the sandbox is frozen. */
export async function startEntrypoint(
  sandbox: Sandbox,
  entrypoint: readonly string[],
  place: { user: string; workdir: string },
  signal: AbortSignal | undefined,
): Promise<void> {
  if (entrypoint.length === 0) return
  await capture(
    sandbox,
    {
      argv: [
        '/bin/sh',
        '-c',
        '"$@" </dev/null >/dev/null 2>&1 &',
        'closedbook',
        ...entrypoint,
        'sh',
        '-c',
        'sleep infinity',
      ],
      user: place.user,
      workdir: place.workdir === '' ? '/' : place.workdir,
      label,
    },
    { signal },
  )
}

/**
 * Docker's rules: in the start period a failure doesn't count; after it, so many in a row are the end. A command that
 * takes too long has failed, like any other.
 */
export async function untilHealthy(
  sandbox: Sandbox,
  check: Healthcheck,
  { user, workdir, signal }: { user: string; workdir: string; signal: AbortSignal },
): Promise<void> {
  const started = performance.now()
  for (let failures = 0; ;) {
    const starting = performance.now() - started < check.startPeriodMs
    const start = {
      argv: ['/bin/bash', '-c', check.command],
      user,
      workdir,
      timeoutMs: check.timeoutMs,
      merged: true,
      label: `${ownLabel}healthcheck`,
    }
    const run = await capture(sandbox, start, { limitBytes: 4 * 1024 ** 2, signal })
    if (run.end.cause === 'exited' && exitCodeOf(run.end) === 0) return
    if (!starting) failures += 1
    if (failures >= check.retries) {
      const how =
        run.end.cause === 'timeout'
          ? `did not end within ${check.timeoutMs / 1000} s`
          : `ended with ${JSON.stringify(run.end.exit)}: ${lastLines(run.stdout)}`
      throw new RunnerError(
        'task_invalid',
        'task',
        `the health check of the task failed ${check.retries} times before the agent was to start; the last ${how}`,
      )
    }
    await delay(starting ? check.startIntervalMs : check.intervalMs, signal)
  }
}
