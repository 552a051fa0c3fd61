/** Which PTY session a person means who names a trial or a lease, or the beginning of one. */
import type { DaemonClient, Wait } from '../../daemon/protocol/client.ts'
import type { LeaseView } from '../../daemon/protocol/lease.ts'
import type { PtyView } from '../../daemon/protocol/pty.ts'
import { RunnerError } from '../errors.ts'

/** Open leases; of a trial, those of all its sandboxes. */
export async function findLeases(
  client: DaemonClient,
  text: string,
  wait: Wait = {},
): Promise<LeaseView[]> {
  const leases = await client.leases(wait)
  const exact = leases.filter(({ lease, trial }) => lease === text || trial === text)
  if (exact.length > 0) return exact
  const begun = leases.filter(
    ({ lease, trial }) => lease.startsWith(text) || trial?.startsWith(text) === true,
  )
  const meant = new Set(begun.map(({ lease, trial }) => trial ?? lease))
  if (meant.size > 1)
    throw new RunnerError(
      'usage',
      'operator',
      `${JSON.stringify(text)} is the beginning of ${[...meant].toSorted().join(', ')}; write more of it`,
    )
  if (begun.length > 0) return begun
  throw new RunnerError(
    'trial_unknown',
    'operator',
    `no open sandbox belongs to ${JSON.stringify(text)}; \`closedbook ps\` and \`closedbook lease list\` show them, \`closedbook replay\` plays what has ended`,
  )
}

/** A running session: the one whose id begins so, else the agent's, the harness's, a person's. */
export async function findSession(
  client: DaemonClient,
  text: string,
  pty: string | undefined,
  wait: Wait = {},
): Promise<PtyView> {
  const leases = await findLeases(client, text, wait)
  const lists = await Promise.all(leases.map(({ lease }) => client.ptys(lease, wait)))
  const all = lists.flat()
  if (pty !== undefined) {
    const [found, second] = all.filter((view) => view.pty.startsWith(pty))
    if (found !== undefined && second === undefined) return found
    throw new RunnerError(
      'usage',
      'operator',
      `${second === undefined ? 'no' : 'more than one'} terminal of ${text} has an id that begins with ${JSON.stringify(pty)}; there are ${listed(all)}`,
    )
  }
  const running = all.filter(({ state }) => state === 'running')
  for (const role of ['agent', 'harness', 'person'])
    for (const view of running.toReversed()) if (view.role === role) return view
  throw new RunnerError(
    'usage',
    'operator',
    all.length === 0
      ? `${text} has no terminal; \`closedbook logs -f\` shows its steps, \`closedbook shell ${text}\` opens a terminal of your own`
      : `no terminal of ${text} runs any more; \`closedbook replay\` plays ${listed(all)}`,
  )
}

const listed = (views: readonly PtyView[]): string =>
  views.map(({ pty, role, state }) => `${pty} (${role}, ${state})`).join(', ') || 'none'
