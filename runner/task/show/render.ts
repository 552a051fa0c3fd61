/** The facts of a task as lines for people. */
import type { SuiteFacts, TaskFacts } from './facts.ts'

export function renderFacts(facts: TaskFacts): string {
  const { limits, qualification, reviews, probe, image } = facts
  const rows: [string, string][] = [
    ['name', facts.name],
    ['directory', facts.dir],
    ['digest', facts.digest],
    ['area', facts.area],
    ['hardware', facts.hardware],
    ['source', facts.source === null ? 'not said' : `${facts.source.kind}: ${facts.source.ref}`],
    ['image', `${image.reference}${image.id === null ? '' : ` (${image.id.slice(0, 19)})`}`],
    ['workdir', facts.workdir ?? "the image's"],
    ['base commit', facts.baseCommit ?? 'HEAD of the image'],
    ['taken', facts.verify === 'artifacts' ? facts.artifacts.join(' ') : facts.verify],
    [
      'agent',
      `${limits.agentSeconds === null ? 'no limit' : `${limits.agentSeconds} s`}, user ${facts.users.agent ?? "the image's"}`,
    ],
    ['verifier', `${limits.verifierSeconds} s, user ${facts.users.verifier ?? 'root'}`],
    ['resources', resourcesText(limits)],
    ['functional', suiteText(facts.suites.functional)],
    ['regression', facts.suites.regression === null ? 'none' : suiteText(facts.suites.regression)],
    ['solution', facts.solution ?? 'none'],
    ...facts.huggingface.map(({ repo, revision, files }): [string, string] => [
      'model files',
      `${repo}@${(revision ?? '').slice(0, 12)} ${(files ?? ['all']).join(' ')}`,
    ]),
    ['qualification', qualificationText(qualification)],
    [
      'probe',
      probe === null ? 'never' : `${probe.ok ? 'no cheat passed' : 'a cheat passed'}, ${probe.at}`,
    ],
    [
      'review',
      reviews.current === null
        ? reviews.count === 0
          ? 'none'
          : `none that holds (${reviews.count} before)`
        : `${reviews.current.decision} by ${reviews.current.by}, ${reviews.current.at}`,
    ],
    ...facts.notes.map((note): [string, string] => ['note', note]),
  ]
  return rows.map(([name, value]) => `${name.padEnd(14)} ${value}`).join('\n')
}

function suiteText({ command, results, timeoutSeconds, expected }: SuiteFacts): string {
  const count = expected === null ? 'expected ids not recorded' : `${expected.length} expected`
  return `${count}, ${results}, ${timeoutSeconds} s: ${command}`
}

function qualificationText({ state, at, changed }: TaskFacts['qualification']): string {
  const since = changed.length === 0 ? '' : `; changed since: ${changed.slice(0, 3).join(', ')}`
  return `${state}${at === null ? '' : `, ${at}`}${since}`
}

function resourcesText({ resources, capabilities }: TaskFacts['limits']): string {
  const mib = (bytes: number | undefined): string | null =>
    bytes === undefined ? null : `${Math.round(bytes / 1024 ** 2)} MiB`
  const parts = [
    resources.cpus === undefined ? null : `${resources.cpus} CPUs`,
    mib(resources.memoryBytes) === null ? null : `${mib(resources.memoryBytes)} memory`,
    mib(resources.diskBytes) === null ? null : `${mib(resources.diskBytes)} disk`,
    resources.pids === undefined ? null : `${resources.pids} processes`,
    capabilities.length === 0 ? null : capabilities.join(' '),
  ].filter((part) => part !== null)
  return parts.length === 0 ? "the configuration's" : parts.join(', ')
}
