/**
 * Harbor's collect hooks: commands of the task in the agent's container, when the agent has ended and its processes
 * still live. They prepare what is then collected. One that fails is said in the result, and the trial goes on, for the
 * agent may have broken what they stand on.
 */
import { RemoteError } from '../../daemon/protocol/errors.ts'
import type { ExecEnd } from '../../daemon/protocol/exec-frames.ts'
import { ownLabel } from '../step-log.ts'
import type { ExecutionContext } from './context.ts'
import type { HeldLease } from './held-lease.ts'
import { workdirOf } from './workdir.ts'

const outputLimitBytes = 256 * 1024

export async function runCollectHooks(context: ExecutionContext, agent: HeldLease): Promise<void> {
  const { client, task, images, evidence, remarks, signal } = context
  if (task.collectHooks.length === 0) return
  const image = await client.inspectImage(images.task, { signal })
  const workdir = await workdirOf(context)
  const log: Buffer[] = []
  for (const { command, timeoutMs, user } of task.collectHooks) {
    log.push(Buffer.from(`$ ${command}\n`))
    const start = {
      argv: ['/bin/bash', '-c', command],
      workdir,
      timeoutMs,
      merged: true,
      outputLimitBytes,
      label: `${ownLabel}collect`,
      user: user ?? (image.user === '' ? '0' : image.user),
    }
    const failure = await agent
      .exec(start, { onStdout: (bytes) => void log.push(bytes), signal })
      .then(whyFailed, (error: unknown) => {
        signal.throwIfAborted()
        // A container that is gone is told when it is frozen.
        if (error instanceof RemoteError) return error.message
        throw error
      })
    if (failure !== null) remarks.push(`the collect hook "${command}" failed: ${failure}`)
  }
  await evidence.write('collect-hooks.log', Buffer.concat(log))
}

function whyFailed({ cause, exit }: ExecEnd): string | null {
  if (cause === 'timeout') return 'it did not end in time'
  if (cause !== 'exited') return cause
  if (typeof exit === 'object' && 'code' in exit && exit.code === 0) return null
  return `it ended with ${JSON.stringify(exit)}`
}
