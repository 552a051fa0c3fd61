/**
 * A harness's program on a terminal of a sandbox: people can look on, it is recorded, and it outlives a daemon that is
 * killed. Ended by us at its time limit, or when it has been silent for too long to be alive.
 */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { PtyEnd } from '../../daemon/protocol/pty.ts'
import { RunnerError } from '../errors.ts'
import type { HeldLease } from './held-lease.ts'
import type { Limits, ModelSettings } from '../job/configuration.ts'
import { ownLabel } from '../step-log.ts'

export interface TerminalProgram {
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** undefined: of the lease. */
  readonly workdir?: string | undefined
  readonly label: string
  readonly timeoutMs: number
  /** Without a byte for so long it hangs. */
  readonly silenceMs: number
}

export interface TerminalEnd {
  readonly end: PtyEnd
  readonly timedOut: boolean
  readonly hung: boolean
  /** What it put out, up to a limit. */
  readonly output: Buffer
}

const outputLimitBytes = 4 * 1024 * 1024
const watchEveryMs = 2_000

/** Beyond the longest command and the longest answer, which are silent as well. */
const silenceGraceMs = 120_000

export const miniSilenceMs = (model: ModelSettings, limits: Limits): number =>
  1000 * (limits.commandTimeoutSeconds + model.timeoutSeconds) + silenceGraceMs

export async function runOnTerminal(
  client: DaemonClient,
  held: HeldLease,
  { argv, env, workdir, label, timeoutMs, silenceMs }: TerminalProgram,
  signal: AbortSignal,
): Promise<TerminalEnd> {
  const { lease } = held
  const { pty } = await client.openPty(
    lease,
    {
      ...{ argv: [...argv], env: { ...env }, timeoutMs, hold: true },
      ...(workdir === undefined ? {} : { cwd: workdir }),
      role: 'harness',
      label: `${ownLabel}${label}`,
    },
    { signal },
  )
  const output: Buffer[] = []
  let kept = 0
  let heardAt = performance.now()
  let hung = false
  const attachment = client.attachPty(lease, pty, {
    from: 0,
    signal,
    onState: (state) => {
      if (state === 'connected') held.lookNow()
    },
    onOutput: (bytes) => {
      heardAt = performance.now()
      if (kept < outputLimitBytes) output.push(Buffer.from(bytes))
      kept += bytes.length
    },
  })
  const watch = setInterval(() => {
    if (hung || performance.now() - heardAt < silenceMs) return
    hung = true
    client.closePty(lease, pty).catch(() => {})
  }, watchEveryMs)
  watch.unref()
  try {
    const end = await attachment.ended
    if (end.cause === 'engine_lost' || end.cause === 'host_lost')
      throw new RunnerError(
        'harness_failed',
        'infra',
        `the terminal of ${label} was lost (${end.cause}); how it ended can't be known`,
      )
    return {
      end,
      timedOut: end.cause === 'timeout',
      hung,
      output: Buffer.concat(output).subarray(0, outputLimitBytes),
    }
  } finally {
    clearInterval(watch)
    attachment.close()
  }
}
