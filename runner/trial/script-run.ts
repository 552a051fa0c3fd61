/** A shell script as the agent, inside the task's sandbox: the task's own solution (oracle), or any file. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { RunnerError } from '../errors.ts'
import type { Harness } from '../harness/harness.ts'
import { agentTimeMs, type HarnessEnd, type HarnessRun, type Sandboxes } from './harness-run.ts'
import { packDirectory, packFiles } from './bundle.ts'
import type { ExecutionContext } from './context.ts'
import { evidenceNames } from './evidence.ts'
import type { HeldLease } from './held-lease.ts'
import { capture } from './sandbox.ts'
import { scriptTarget, solutionSource, solutionTarget } from './script-places.ts'
import { mustSucceed } from './trusted-git.ts'

const logLimitBytes = 4 * 1024 * 1024

export async function scriptRun(
  context: ExecutionContext,
  harness: Extract<Harness, { kind: 'oracle' | 'script' }>,
): Promise<HarnessRun> {
  const { client, task, signal } = context
  if (harness.kind === 'script') {
    const bundle = await client.putBundle(
      await packFiles({ 'script.sh': await readFile(harness.file) }),
      { signal },
    )
    return run(context, { bundle, target: scriptTarget }, ['bash', `${scriptTarget}/script.sh`], {})
  }
  const { script, env } = task.solution
  if (script === null || task.solutionDir === null)
    throw new RunnerError(
      'task_invalid',
      'task',
      `${task.dir} has no solution/solve.sh, so the oracle has nothing to run; add one`,
    )
  const tar = await packDirectory(task.solutionDir, task.leftOut.solution)
  const bundle = await client.putBundle(tar, { signal })
  const solve = path.posix.join(solutionTarget, script)
  const settings = { DEBIAN_FRONTEND: 'noninteractive', ...env }
  if (!task.harbor)
    return run(context, { bundle, target: solutionTarget }, ['bash', solve], settings)
  const mount = { bundle, target: solutionSource }
  return run(context, mount, ['bash', '-c', `(${solve}) 2>&1`], settings, copySolution(solve))
}

/** Harbor's scripts may write beside themselves, and start by their own first line. */
const copySolution = (solve: string) => async (task: HeldLease, signal: AbortSignal) => {
  const script = `cp -R ${solutionSource}/. ${solutionTarget} && chmod +x ${solve}`
  const start = { argv: ['/bin/sh', '-c', script], user: '0', workdir: '/' }
  mustSucceed(await capture(task, start, { signal }), 'copying the solution')
}

function run(
  context: ExecutionContext,
  mount: { bundle: string; target: string },
  argv: string[],
  env: Record<string, string>,
  before: (task: HeldLease, signal: AbortSignal) => Promise<void> = async () => {},
): HarnessRun {
  const work = async (sandboxes: Sandboxes, signal: AbortSignal): Promise<HarnessEnd> => {
    const task = await sandboxes.task
    await before(task, signal)
    const log: Buffer[] = []
    const end = await task.exec(
      {
        argv,
        env,
        merged: true,
        label: 'agent',
        timeoutMs: agentTimeMs(context),
        outputLimitBytes: logLimitBytes,
      },
      { onStdout: (bytes) => void log.push(bytes), signal },
    )
    await context.evidence.write(evidenceNames.harnessLog, Buffer.concat(log))
    return { exit: end.exit, timedOut: end.cause === 'timeout', trajectory: null }
  }
  return { task: { mounts: [mount] }, harness: null, work }
}
