/** What was put out on the terminals of a trial, as asciicast: terminal.cast, and terminal-2.cast of a second one. */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { Evidence } from './evidence.ts'

export const recordingName = (index: number): string =>
  index === 0 ? 'terminal.cast' : `terminal-${index + 1}.cast`

export async function saveRecordings(
  client: DaemonClient,
  evidence: Evidence,
  leases: readonly { readonly lease: string }[],
  signal: AbortSignal,
): Promise<void> {
  const all = await Promise.all(leases.map(({ lease }) => client.ptys(lease, { signal })))
  const sessions = all.flat().toSorted((a, b) => (a.startedAt < b.startedAt ? -1 : 1))
  for (const [index, { lease, pty }] of sessions.entries())
    await evidence.writeStream(
      recordingName(index),
      await client.ptyRecording(lease, pty, { signal }),
    )
}
