/** Removes paths from a container that no agent has seen: what it must not hold before other work is laid out in it. */
import { RunnerError } from '../errors.ts'
import { capture, exitCodeOf, type Sandbox } from './sandbox.ts'

export async function removeAll(
  sandbox: Sandbox,
  paths: readonly string[],
  signal: AbortSignal | undefined,
): Promise<void> {
  if (paths.length === 0) return
  const argv = ['/bin/sh', '-c', 'exec rm -rf -- "$@"', 'closedbook', ...paths]
  const run = await capture(sandbox, { argv, user: '0', workdir: '/' }, { signal })
  if (exitCodeOf(run.end) === 0) return
  throw new RunnerError(
    'verify_failed',
    'infra',
    `removing files failed in lease ${sandbox.lease}: ${run.stderr.toString().trim().slice(0, 400)}`,
  )
}
