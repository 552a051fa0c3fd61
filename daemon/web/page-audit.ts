/**
 * Search over every decision about traffic. Lines come as they are found and stay text until they are in sight, so that
 * a hundred thousand of them are no burden. What was asked stands in the address of the page.
 */
import type { AuditEvent } from '../../policy/audit-event.ts'
import { lines } from './api.ts'
import { show } from './dialog.ts'
import { fill, h, type Child } from './dom.ts'
import { bytes, count, instant } from './format.ts'
import { line, plain } from './hostile.ts'
import type { Page } from './page.ts'
import { virtualList } from './virtual-list.ts'

const limit = 100_000
const fields = [
  'trial',
  'lease',
  'host',
  'reason',
  'action',
  'protocol',
  'kind',
  'since',
  'until',
] as const
type Field = (typeof fields)[number]
/** The compiler misses none that the log may have; those that nobody asks for are left out by name. */
const protocols = {
  connect: '',
  http: '',
  tls: '',
  dns: '',
  tcp: '',
  udp: '',
  icmp: '',
  other: '',
  model: '',
  hf: '',
} satisfies Record<Exclude<AuditEvent['protocol'], 'none'>, ''>
const kinds = {
  decision: '',
  close: '',
  census: '',
  aggregate: '',
  lifecycle: '',
} satisfies Record<AuditEvent['kind'], ''>
const actions = { deny: '', allow: '', none: '' } satisfies Record<AuditEvent['action'], ''>
const choices: Partial<Record<Field, readonly string[]>> = {
  action: ['', ...Object.keys(actions)],
  protocol: ['', ...Object.keys(protocols)],
  kind: ['', ...Object.keys(kinds)],
}
const hints: Partial<Record<Field, string>> = {
  trial: 'id',
  lease: 'id',
  host: 'name, address or *.name',
  reason: 'not_allowed_host …',
}

export function auditPage(page: Page): void {
  const { root, query, signal } = page
  page.title('Audit')
  const inputs = new Map<Field, HTMLInputElement | HTMLSelectElement>()
  for (const field of fields)
    inputs.set(
      field,
      inputOf(
        field,
        query.get(field) ?? (field === 'action' && [...query].length === 0 ? 'deny' : ''),
      ),
    )
  const status = h('span', { role: 'status', class: 'quiet' })
  let found: string[] = []
  let newestFirst = false
  let searching = new AbortController()
  const list = virtualList<string>({
    label: 'events',
    head: h(
      'div',
      { class: 'audit-head', aria: { hidden: true } },
      ...['time', 'action', 'reason', 'protocol', 'target', 'count', 'bytes', 'trial'].map(
        (title) => h('span', {}, title),
      ),
    ),
    draw: (text) => row(text),
    open: (text) => details(text),
  })
  const order = h(
    'button',
    {
      type: 'button',
      on: {
        click: () => {
          newestFirst = !newestFirst
          fill(order, orderText())
          draw()
        },
      },
    },
    'oldest first',
  )
  const orderText = (): string => (newestFirst ? 'newest first' : 'oldest first')
  const draw = (): void => list.update(newestFirst ? found.toReversed() : found)
  const form = h(
    'form',
    {
      class: 'audit-form',
      on: {
        submit: (event) => {
          event.preventDefault()
          void search()
        },
      },
    },
    ...fields.map((field) => h('label', {}, h('span', {}, field), inputs.get(field))),
    h('button', { type: 'submit', class: 'primary' }, 'Search'),
  )
  root.append(
    h('h1', {}, 'Audit'),
    form,
    h('div', { class: 'audit-status' }, status, h('span', { class: 'spring' }), order),
    list.element,
  )

  async function search(): Promise<void> {
    searching.abort()
    searching = new AbortController()
    const mine = searching
    const asked = new URLSearchParams()
    for (const [field, input] of inputs) if (input.value !== '') asked.set(field, input.value)
    history.replaceState(null, '', `/audit?${asked}`)
    for (const field of ['since', 'until'] as const) {
      const value = asked.get(field)
      if (value !== null) asked.set(field, new Date(value).toISOString())
    }
    asked.set('limit', String(limit))
    found = []
    draw()
    const started = performance.now()
    let drawnAt = 0
    const say = (end: string): void => fill(status, `${count(found.length)} events${end}`)
    say(', searching…')
    try {
      for await (const piece of lines(`/v1/audit/query?${asked}`, {
        signal: AbortSignal.any([signal, mine.signal]),
      })) {
        for (const text of piece) found.push(text)
        if (performance.now() - drawnAt < 120) continue
        drawnAt = performance.now()
        draw()
        say(', searching…')
      }
      draw()
      say(
        `${found.length === limit ? ' (the first; narrow the search for others)' : ''} in ${((performance.now() - started) / 1000).toFixed(2)} s`,
      )
    } catch (error) {
      if (!signal.aborted && !mine.signal.aborted)
        fill(status, h('span', { class: 'bad' }, (error as Error).message))
    }
  }
  void search()
}

function inputOf(field: Field, value: string): HTMLInputElement | HTMLSelectElement {
  const options = choices[field]
  if (options !== undefined)
    return h(
      'select',
      { name: field },
      ...options.map((one) =>
        h('option', { value: one, selected: one === value }, one === '' ? 'any' : one),
      ),
    )
  if (field === 'since' || field === 'until')
    return h('input', { type: 'datetime-local', name: field, step: '1', value })
  return h('input', {
    type: 'text',
    name: field,
    value,
    spellcheck: 'false',
    autocomplete: 'off',
    placeholder: hints[field] ?? '',
  })
}

function eventOf(text: string): AuditEvent | null {
  try {
    return JSON.parse(text) as AuditEvent
  } catch {
    return null
  }
}

export const targetText = ({
  host,
  address,
  port,
}: Pick<AuditEvent, 'host' | 'address' | 'port'>): string =>
  line(`${host ?? address ?? '–'}${port === null ? '' : `:${port}`}`, 120)

function row(text: string): HTMLElement {
  const event = eventOf(text)
  if (event === null) return h('div', { class: 'audit-row' }, line(text))
  const cells: Child[] = [
    instant(event.time),
    h(
      'span',
      { class: event.action === 'deny' ? 'bad' : event.action === 'allow' ? 'good' : 'quiet' },
      event.action === 'deny' ? '⊘ deny' : event.action,
    ),
    event.reason ?? event.kind,
    event.protocol,
    h('span', { class: 'mono' }, targetText(event)),
    count(event.count),
    event.bytesUp + event.bytesDown === 0 ? '' : bytes(event.bytesUp + event.bytesDown),
    event.trial === null
      ? h('span', { class: 'mono quiet' }, event.lease)
      : h(
          'a',
          { class: 'mono', href: `/trials/${encodeURIComponent(event.trial)}`, tabindex: -1 },
          line(event.trial, 24),
        ),
  ]
  return h('div', { class: 'audit-row' }, ...cells.map((cell) => h('span', {}, cell)))
}

function details(text: string): void {
  const event = eventOf(text)
  show(
    'Audit event',
    h('pre', { class: 'json' }, plain(event === null ? text : JSON.stringify(event, null, 2))),
  )
}
