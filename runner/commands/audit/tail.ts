/** `closedbook audit tail [-f] LEASE|TRIAL`: the last events, and what comes. */
import { InvalidArgumentError, type Command } from 'commander'
import type { AuditEvent } from '../../../policy/audit-event.ts'
import { findTrial, type FoundTrial } from '../../job/find-trial.ts'
import { ledgerFile } from '../../job/layout.ts'
import { readLedger } from '../../job/ledger.ts'
import { foldTrial } from '../../job/trial-state.ts'
import { note, withContext } from '../context.ts'
import { eventsOf, Shown } from './shown.ts'

const recordedPollMs = 1_000

export function addTail(audit: Command): void {
  audit
    .command('tail')
    .description('the last events of a lease or trial, and with -f what comes')
    .argument('<lease|trial>')
    .option('-n, --lines <n>', 'events of before to show', whole, 10)
    .option('-f, --follow', 'go on until the lease is closed or the trial is recorded')
    .option('--json', 'one JSON event a line')
    .option('--canaries', 'also show what our own proof tried')
    .option('--denied', 'only what was refused')
    .action(async (id: string, options: { lines: number; follow?: boolean }, command: Command) =>
      withContext(command, async (context) => {
        const shown = new Shown(command, context.json)
        const last: AuditEvent[] = []
        /** Number of the last event that was seen, by lease. */
        const seen = new Map<string, number>()
        for await (const event of eventsOf(id, context)) {
          seen.set(event.lease, event.seq)
          if (!shown.wants(event)) continue
          last.push(event)
          if (last.length > options.lines) last.shift()
        }
        for (const event of last) shown.add(event)
        if (options.follow !== true) {
          if (shown.count === 0 && !context.json) note('nothing was tried')
          return
        }
        const trial = await findTrial(context.config.jobsDir, id)
        const done = new AbortController()
        const poll =
          trial === null
            ? null
            : setInterval(() => void stopWhenRecorded(trial, done), recordedPollMs)
        const signal = AbortSignal.any([context.signal, done.signal])
        try {
          for await (const event of context.client.audit(id, { follow: true, signal }))
            if (event.seq > (seen.get(event.lease) ?? 0)) shown.add(event)
        } catch (error) {
          if (!done.signal.aborted) throw error
        } finally {
          if (poll !== null) clearInterval(poll)
        }
      }),
    )
}

function whole(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('a whole number, such as 20')
  return Number(text)
}

async function stopWhenRecorded(
  { jobDir, planned }: FoundTrial,
  done: AbortController,
): Promise<void> {
  const ledger = await readLedger(ledgerFile(jobDir)).catch(() => null)
  if (ledger !== null && foldTrial(planned.trial, ledger.records).status === 'recorded')
    done.abort()
}
