/** The labels on every engine object of ours, by which a restarted daemon knows what it owns, and nothing else. */
export const instanceLabel = 'closedbook.instance'
const leaseLabel = 'closedbook.lease'

/** A container that is never started: its file system is read, and it is removed. */
const purposeLabel = 'closedbook.purpose'
export const exportLabels = (instance: string): Record<string, string> => ({
  [instanceLabel]: instance,
  [purposeLabel]: 'export',
})
export const isExport = (labels: Readonly<Record<string, string>>): boolean =>
  labels[purposeLabel] === 'export'

export interface LabelFacts {
  readonly instance: string
  readonly lease: string
  readonly trial: string | null
  readonly owner: string
  readonly expiresAt: string
}

export function leaseLabels(facts: LabelFacts): Record<string, string> {
  return {
    [instanceLabel]: facts.instance,
    [leaseLabel]: facts.lease,
    ...(facts.trial === null ? {} : { 'closedbook.trial': facts.trial }),
    'closedbook.owner': facts.owner,
    'closedbook.expires': facts.expiresAt,
  }
}

export const leaseOfLabels = (labels: Readonly<Record<string, string>>): string | null =>
  labels[leaseLabel] ?? null
