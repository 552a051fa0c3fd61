/** A shell script as the agent, inside the task's sandbox: the task's own solution (oracle), or any file. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { RunnerError } from '../errors.ts'
import type { Harness } from '../harness/harness.ts'
import { agentTimeMs, type HarnessEnd, type HarnessRun, type Sandboxes } from './harness-run.ts'
import { packDirectory, packFiles } from './bundle.ts'
import type { ExecutionContext } from './context.ts'
import { evidenceNames } from './evidence.ts'

const scriptTarget = '/closedbook-script'
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
  const bundle = await client.putBundle(await packDirectory(task.solutionDir), { signal })
  const argv = ['bash', path.posix.join('/solution', script)]
  return run(context, { bundle, target: '/solution' }, argv, {
    DEBIAN_FRONTEND: 'noninteractive',
    ...env,
  })
}

function run(
  context: ExecutionContext,
  mount: { bundle: string; target: string },
  argv: string[],
  env: Record<string, string>,
): HarnessRun {
  const work = async (sandboxes: Sandboxes, signal: AbortSignal): Promise<HarnessEnd> => {
    const task = await sandboxes.task
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
