/** What came of a trial: phases, patch, tests, the files of its last execution, and what it ran with. */
import type { EvidenceDocument, TrialDocument } from '../protocol/board-documents.ts'
import { jsonOrNull } from './api.ts'
import { diffView } from './diff.ts'
import { fill, h } from './dom.ts'
import { bytes, count, duration, instant } from './format.ts'
import { line, plain } from './hostile.ts'
import type { Canary, TrialResult } from './result.ts'
import { table } from './table.ts'

export function phasesBar({ phasesMs }: TrialResult): HTMLElement {
  const phases = Object.entries(phasesMs).filter(([, ms]) => ms > 0)
  const worked = phases.reduce((sum, [name, ms]) => sum + (name === 'queue' ? 0 : ms), 0) || 1
  // A long wait would squeeze what was done into a corner.
  const widthOf = (name: string, ms: number): number =>
    name === 'queue' ? Math.min(ms / worked, 0.12) : ms / worked
  return h(
    'div',
    {
      class: 'phase-row',
      role: 'img',
      aria: { label: phases.map(([name, ms]) => `${name} ${duration(ms)}`).join(', ') },
    },
    ...phases.map(([name, ms]) => {
      const part = h(
        'span',
        { class: `phase phase-${name}`, title: `${name}: ${duration(ms)}` },
        widthOf(name, ms) > 0.08 ? `${name} ${duration(ms)}` : '',
      )
      part.style.flexGrow = String(Math.max(widthOf(name, ms), 0.004))
      return part
    }),
  )
}

const evidenceOf = (
  trial: TrialDocument,
  name: string,
  signal: AbortSignal,
): Promise<EvidenceDocument | null> => {
  const note = trial.evidence.find((one) => one.name === name)
  return note?.id === null || note === undefined
    ? Promise.resolve(null)
    : jsonOrNull<EvidenceDocument>(`/v1/board/evidence/${encodeURIComponent(note.id)}`, { signal })
}

export async function patchPanel(
  panel: HTMLElement,
  trial: TrialDocument,
  signal: AbortSignal,
): Promise<void> {
  const patch = await evidenceOf(trial, 'patch.diff', signal)
  if (patch === null) return fill(panel, h('p', { class: 'empty' }, 'No patch has been published.'))
  fill(
    panel,
    patch.truncated
      ? h(
          'p',
          { class: 'bad' },
          `Only the first ${bytes(patch.text.length)} of ${bytes(patch.bytes)} are shown; the whole is in ${line(patch.path)}.`,
        )
      : null,
    diffView(patch.text),
  )
}

export function testsPanel(panel: HTMLElement, { tests }: TrialResult): void {
  const words = h('input', {
    type: 'search',
    class: 'filter',
    placeholder: 'filter tests',
    aria: { label: 'filter tests' },
    on: { input: () => draw() },
  })
  const failing = h('input', {
    type: 'checkbox',
    checked: tests.some(({ outcome }) => outcome !== 'passed'),
    on: { change: () => draw() },
  })
  const rows = table<TrialResult['tests'][number]>({
    label: 'tests',
    key: ({ suite, id }) => `${suite} ${id}`,
    empty: 'No test matches.',
    columns: [
      {
        key: 'outcome',
        title: 'outcome',
        value: ({ outcome }) => outcome,
        show: ({ outcome }) => h('span', { class: `badge test-${outcome}` }, outcome),
      },
      { key: 'suite', title: 'suite', value: ({ suite }) => suite },
      {
        key: 'id',
        title: 'test',
        value: ({ id }) => id,
        show: ({ id }) => h('span', { class: 'mono wrap' }, line(id, 300)),
      },
      {
        key: 'time',
        title: 'time',
        number: true,
        value: ({ durationMs }) => durationMs,
        show: ({ durationMs }) => (durationMs === null ? '–' : duration(durationMs)),
      },
      {
        key: 'message',
        title: 'message',
        value: ({ message }) => message,
        show: ({ message }) => (message === null || message === '' ? null : messageOf(message)),
      },
    ],
  })
  const draw = (): void => {
    const wanted = words.value.toLowerCase()
    rows.update(
      tests.filter(
        ({ id, outcome }) =>
          id.toLowerCase().includes(wanted) && (!failing.checked || outcome !== 'passed'),
      ),
    )
  }
  const outcomes = [...Map.groupBy(tests, ({ outcome }) => outcome)].map(
    ([outcome, own]) => `${count(own.length)} ${outcome}`,
  )
  fill(
    panel,
    h(
      'div',
      { class: 'filters' },
      words,
      h('label', { class: 'check' }, failing, 'only those that did not pass'),
      h('span', { class: 'quiet' }, outcomes.join(' · ')),
    ),
    rows.element,
  )
  draw()
}

function messageOf(message: string): HTMLElement {
  const text = plain(message)
  return text.length < 120 && !text.includes('\n')
    ? h('span', {}, text)
    : h('details', {}, h('summary', {}, line(text, 100)), h('pre', {}, text))
}

export function evidencePanel(panel: HTMLElement, trial: TrialDocument, signal: AbortSignal): void {
  if (trial.evidence.length === 0)
    return fill(panel, h('p', { class: 'empty' }, 'No file has been published.'))
  fill(
    panel,
    ...trial.evidence.map(({ name, bytes: size, id }) => {
      if (id === null)
        return h(
          'div',
          { class: 'evidence' },
          h('code', {}, line(name)),
          h('span', { class: 'quiet' }, `${bytes(size)}, in the job’s directory`),
        )
      const box = h('div', {})
      let asked = false
      const details = h(
        'details',
        {
          class: 'evidence',
          on: {
            toggle: () => {
              if (!details.open || asked) return
              asked = true
              evidenceOf(trial, name, signal).then(
                (found) => fill(box, ...shownEvidence(found)),
                (error: unknown) => fill(box, h('p', { class: 'bad' }, (error as Error).message)),
              )
            },
          },
        },
        h('summary', {}, h('code', {}, line(name)), h('span', { class: 'quiet' }, bytes(size))),
        box,
      )
      return details
    }),
  )
}

function shownEvidence(found: EvidenceDocument | null): Node[] {
  if (found === null) return [h('p', { class: 'empty' }, 'It is no longer on the board.')]
  const note = found.truncated ? `; its first ${bytes(found.text.length)}` : ''
  return [
    h('p', { class: 'quiet mono' }, `${line(found.path)}${note}`),
    h('pre', { class: 'file', tabindex: 0 }, plain(found.text)),
  ]
}

export function factsPanel(panel: HTMLElement, result: TrialResult): void {
  const { configuration, digests, host, gpus, proof, executions, egress } = result
  fill(
    panel,
    h(
      'div',
      { class: 'facts' },
      facts('Ran with', [
        ['configuration', configuration.name],
        ['model', configuration.model ?? 'none'],
        ['harness', configuration.harness],
        ['host', `${host.name}, ${host.cpus} CPUs, engine ${host.engine}, kernel ${host.kernel}`],
        [
          'GPUs',
          gpus.length === 0 ? 'none' : gpus.map(({ name, uuid }) => `${name} ${uuid}`).join(', '),
        ],
        ['closedbook', result.closedbookVersion],
      ]),
      facts(
        'Digests',
        Object.entries(digests).map(([name, digest]) => [name, digest ?? 'none'] as const),
      ),
      facts('Traffic', [
        ['attempts', count(egress.attempts)],
        ['denied', count(egress.denied)],
        ['allowed', count(egress.allowed)],
        ...Object.entries(egress.byReason).map(
          ([reason, times]) => [reason, count(times)] as const,
        ),
      ]),
      facts(
        'Executions',
        executions.map(
          (one) =>
            [
              one.id,
              `${instant(one.startedAt)} to ${instant(one.endedAt)}${one.reason === null ? '' : `: ${one.reason.message}`}`,
            ] as const,
        ),
      ),
    ),
    h('h3', {}, 'Proof that the sandbox was shut'),
    proofTable(proof.before, proof.after),
  )
}

function facts(title: string, rows: readonly (readonly [string, string])[]): HTMLElement {
  return h(
    'section',
    {},
    h('h3', {}, title),
    h(
      'dl',
      {},
      ...rows.flatMap(([name, value]) => [
        h('dt', {}, line(name)),
        h('dd', { class: 'mono' }, line(value, 300)),
      ]),
    ),
  )
}

function proofTable(before: readonly Canary[], after: readonly Canary[]): HTMLElement {
  const names = [...new Set([...before, ...after].map(({ canary }) => canary))]
  if (names.length === 0) return h('p', { class: 'empty' }, 'This trial has none.')
  const cell = (all: readonly Canary[], name: string): HTMLElement => {
    const one = all.find(({ canary }) => canary === name)
    if (one === undefined) return h('td', { class: 'quiet' }, '–')
    const good = one.seen === one.expected
    return h(
      'td',
      { class: good ? 'good' : 'bad' },
      `${good ? '✓' : '✗'} ${line(one.seen, 60)}${one.audited === true ? ', audited' : ''}`,
    )
  }
  return h(
    'div',
    { class: 'table-box' },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          ...['canary', 'before', 'after'].map((title) => h('th', { scope: 'col' }, title)),
        ),
      ),
      h(
        'tbody',
        {},
        ...names.map((name) =>
          h('tr', {}, h('th', { scope: 'row' }, line(name)), cell(before, name), cell(after, name)),
        ),
      ),
    ),
  )
}
