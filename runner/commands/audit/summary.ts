/** `closedbook audit summary`: what a lease, a trial or a job tried, in exact totals and by target. */
import Table from 'cli-table3'
import type { Command } from 'commander'
import type { LeaseAudit } from '../../../daemon/protocol/audit.ts'
import { RemoteError } from '../../../daemon/protocol/errors.ts'
import { AuditSummary, type AuditTarget, type AuditTotals } from '../../../policy/audit-summary.ts'
import { RunnerError } from '../../errors.ts'
import { findTrial } from '../../job/find-trial.ts'
import { planFile, trialDir } from '../../job/layout.ts'
import { reportedJob } from '../../report/find.ts'
import { readPlan } from '../../job/plan.ts'
import { countText, cut, plainLine } from '../../report/terminal.ts'
import { readEgressFile } from '../../trial/evidence.ts'
import { note, print, printJson, withContext, type Context } from '../context.ts'

/** Of people's interest; a program gets all that there are. */
const shownTargets = 40

export function addSummary(audit: Command): void {
  audit
    .command('summary')
    .description('attempts of a lease, a trial or a whole job: totals, reasons, targets')
    .argument('[lease|trial]')
    .option(
      '--job <job>',
      'every trial of a job: its id, the beginning of one, "latest", or a path',
    )
    .option('--json', 'print JSON')
    .action(async (id: string | undefined, options: { job?: string }, command: Command) =>
      withContext(command, async (context) => {
        if ((id === undefined) === (options.job === undefined))
          throw new RunnerError('usage', 'operator', 'name a lease or a trial, or give --job JOB')
        const leases =
          id === undefined ? await ofJob(options.job ?? '', context) : await ofId(id, context)
        const total = sum(leases.map(({ totals }) => totals))
        if (context.json) return printJson({ ...total, leases })
        print(render(total, leases))
      }),
    )
}

async function ofId(id: string, { client, config, signal }: Context): Promise<LeaseAudit[]> {
  try {
    return await client.auditSummary(id, { signal })
  } catch (error) {
    const found = await findTrial(config.jobsDir, id)
    if (!(error instanceof RemoteError) || found === null) throw error
    return ofEvidence(found.trialDir)
  }
}

/** A trial that runs, or was broken off, has no evidence yet: the daemon beside it has its logs. */
async function ofJob(job: string, { client, config, signal }: Context): Promise<LeaseAudit[]> {
  const jobDir = await reportedJob(config, job)
  const { trials } = await readPlan(planFile(jobDir))
  const leases: LeaseAudit[] = []
  let without = 0
  for (const { trial } of trials) {
    const kept = await ofEvidence(trialDir(jobDir, trial))
    const found =
      kept.length > 0 ? kept : await client.auditSummary(trial, { signal }).catch(() => [])
    leases.push(...found)
    if (found.length === 0) without += 1
  }
  if (without > 0)
    note(
      `${without} of ${trials.length} trials are not counted: nothing of them is here (not begun, on another host, or no daemon answers)`,
    )
  return leases
}

/** A trial that was begun again may have a lease in the evidence of two executions: it counts once. */
async function ofEvidence(directory: string): Promise<LeaseAudit[]> {
  const byLease = new Map<string, { trial: string | null; seq: number; summary: AuditSummary }>()
  for await (const event of readEgressFile(directory)) {
    const { lease, trial, seq } = event
    const known = byLease.get(lease) ?? { trial, seq: 0, summary: new AuditSummary() }
    byLease.set(lease, known)
    if (seq <= known.seq) continue
    known.seq = seq
    known.summary.add(event)
  }
  return [...byLease].map(([lease, { trial, summary }]) => {
    return { lease, trial, open: false, totals: summary.totals() }
  })
}

const totalKeys = [
  'attempts',
  'denied',
  'allowed',
  'events',
  'bytesUp',
  'bytesDown',
  'moreTargets',
] as const

export function sum(all: readonly AuditTotals[]): AuditTotals {
  const total = new AuditSummary().totals()
  const targets = new Map<string, AuditTarget>()
  for (const one of all) {
    for (const key of totalKeys) total[key] += one[key]
    for (const [reason, count] of Object.entries(one.byReason))
      total.byReason[reason] = (total.byReason[reason] ?? 0) + count
    total.from = [total.from, one.from].filter((at) => at !== null).toSorted()[0] ?? null
    total.until =
      [total.until, one.until]
        .filter((at) => at !== null)
        .toSorted()
        .at(-1) ?? null
    for (const { count, ...target } of one.targets) {
      const key = JSON.stringify(target)
      targets.set(key, { ...target, count: count + (targets.get(key)?.count ?? 0) })
    }
  }
  total.targets = [...targets.values()].toSorted((a, b) => b.count - a.count)
  return total
}

function render(total: AuditTotals, leases: readonly LeaseAudit[]): string {
  const trials = new Set(leases.flatMap(({ trial }) => trial ?? [])).size
  const lines = [
    `${countText(total.attempts)} ${total.attempts === 1 ? 'attempt' : 'attempts'} in ${leases.length} ${leases.length === 1 ? 'lease' : 'leases'}${trials === 0 ? '' : ` of ${trials === 1 ? 'one trial' : `${trials} trials`}`}: ` +
      `${countText(total.denied)} refused, ${countText(total.allowed)} allowed`,
    `${countText(total.bytesUp)} bytes went out, ${countText(total.bytesDown)} came in; ${countText(total.events)} events` +
      (total.from === null ? '' : ` from ${total.from} until ${total.until}`),
  ]
  if (total.targets.length === 0) return lines.join('\n')
  const table = new Table({
    head: ['times', '', 'protocol', 'target', 'reason'],
    colAligns: ['right', 'left', 'left', 'left', 'left'],
    style: { head: [], border: [], compact: true },
  })
  for (const { count, action, protocol, host, address, port, reason } of total.targets.slice(
    0,
    shownTargets,
  ))
    table.push([
      countText(count),
      action,
      protocol,
      cut(plainLine(`${host ?? address ?? '-'}${port === null ? '' : `:${port}`}`), 72),
      reason ?? '-',
    ])
  const more = total.targets.length - shownTargets
  if (more > 0)
    lines.push(`the first ${shownTargets} of ${total.targets.length} targets; --json has them all`)
  if (total.moreTargets > 0)
    lines.push(
      `${countText(total.moreTargets)} more attempts on targets that are only counted together`,
    )
  return [lines.slice(0, 2).join('\n'), table.toString(), ...lines.slice(2)].join('\n')
}
