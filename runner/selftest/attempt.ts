/**
 * One attempt to get out of a sandbox, what must come of it, and what must be recorded. Attempts are shell commands for the busybox
 * that every sandbox has, so that they run in any image; they name nothing but documentation addresses
 * and names that can't exist.
 */
import type { AuditEvent } from '../../policy/audit-event.ts'
import type { Reason } from '../../policy/decision.ts'

export interface Attempt {
  readonly name: string
  readonly command: string
  readonly expected: string
  /** What was seen, where it is as expected in words that vary; the output is trimmed. */
  readonly meets: (result: { readonly exit: number; readonly output: string }) => boolean
  /** The event that it must leave; null where the kernel refuses before there is anything to record. */
  readonly audit: { readonly reason: Reason; readonly of: (event: AuditEvent) => boolean } | null
}

export interface AttemptResult {
  readonly attempt: string
  /** The user in the sandbox that tried. */
  readonly user: string
  readonly expected: string
  readonly seen: string
  /** Reason of the event that it left; `-` where none is due; `missing` where it is. */
  readonly audited: string
  /** null: it could not be tried here. */
  readonly ok: boolean | null
}

const mark = '\u0001'
export const busyboxPath = '/.closedbook/busybox'

/** A program that runs all attempts side by side. */
export function attemptProgram(attempts: readonly Attempt[]): string {
  const runs = attempts.map(
    ({ command }, index) =>
      `( o=$( { ${command}; } 2>&1 </dev/null ); echo "${mark}${index} $? $o${mark}" ) &`,
  )
  return `b=${busyboxPath}\n${runs.join('\n')}\nwait\n`
}

/** Judges the output of the program against the events that were recorded while it ran. */
export function judgeAttempts(
  attempts: readonly Attempt[],
  user: string,
  output: string,
  events: readonly AuditEvent[],
): AttemptResult[] {
  const results = new Map<number, { exit: number; output: string }>()
  for (const part of output.split(mark)) {
    const match = /^(\d+) (\d+) ?([^]*)$/.exec(part)
    if (match === null) continue
    const [, index, exit, text = ''] = match
    results.set(Number(index), { exit: Number(exit), output: text.trim() })
  }
  return attempts.map((attempt, index) => judge(attempt, user, results.get(index), events))
}

function judge(
  { name, expected, meets, audit }: Attempt,
  user: string,
  result: { exit: number; output: string } | undefined,
  events: readonly AuditEvent[],
): AttemptResult {
  const row = { attempt: name, user, expected }
  if (result === undefined) return { ...row, seen: 'it did not end', audited: '-', ok: false }
  if (/applet not found/.test(result.output))
    return { ...row, seen: 'not tried: this busybox has no such program', audited: '-', ok: null }
  const asExpected = meets(result)
  const words = result.output === '' ? '' : `: ${result.output.slice(0, 120)}`
  const seen = asExpected ? expected : `exit ${result.exit}${words}`
  if (audit === null) return { ...row, seen, audited: '-', ok: asExpected }
  const found = events.filter(audit.of)
  const right = found.some(({ reason }) => reason === audit.reason)
  const audited = right ? audit.reason : (found[0]?.reason ?? 'missing')
  return { ...row, seen, audited, ok: asExpected && right }
}
