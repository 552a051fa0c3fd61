/** A patch, file by file, with the numbers of lines on both sides. Long ones are drawn piece by piece as they open. */
import { highlighted, languageOf } from './code.ts'
import { h } from './dom.ts'
import { count } from './format.ts'
import { line as oneLine, plain } from './hostile.ts'

interface FilePatch {
  readonly name: string
  readonly lines: readonly string[]
  readonly added: number
  readonly removed: number
}

const drawnAtOnce = 1_500

export function filesOf(patch: string): FilePatch[] {
  const files: { name: string; lines: string[]; added: number; removed: number }[] = []
  for (const line of patch.split('\n')) {
    if (line.startsWith('diff --git ')) {
      const name = / b\/(.*)$/.exec(line)?.[1] ?? line.slice(11)
      files.push({ name, lines: [], added: 0, removed: 0 })
    }
    const file = files.at(-1)
    if (file === undefined) continue
    file.lines.push(line)
    if (line.startsWith('+') && !line.startsWith('+++')) file.added += 1
    if (line.startsWith('-') && !line.startsWith('---')) file.removed += 1
  }
  return files
}

export function diffView(patch: string): HTMLElement {
  const files = filesOf(patch)
  if (files.length === 0) return h('p', { class: 'empty' }, 'The patch is empty.')
  const added = files.reduce((sum, file) => sum + file.added, 0)
  const removed = files.reduce((sum, file) => sum + file.removed, 0)
  return h(
    'div',
    { class: 'diff' },
    h(
      'p',
      { class: 'diff-sum' },
      `${count(files.length)} ${files.length === 1 ? 'file' : 'files'}, `,
      h('span', { class: 'plus' }, `+${count(added)}`),
      ' ',
      h('span', { class: 'minus' }, `−${count(removed)}`),
    ),
    ...files.map((file, index) => fileView(file, index < 20 && file.lines.length < drawnAtOnce)),
  )
}

function fileView(file: FilePatch, open: boolean): HTMLElement {
  const box = h('div', {
    class: 'diff-lines',
    tabindex: 0,
    role: 'region',
    aria: { label: oneLine(file.name) },
  })
  let drawn = false
  const drawOnce = (): void => {
    if (drawn) return
    drawn = true
    drawFrom(file, 0, box)
  }
  const details = h(
    'details',
    { class: 'diff-file', open, on: { toggle: () => details.open && drawOnce() } },
    h(
      'summary',
      {},
      h('code', {}, oneLine(file.name)),
      h('span', { class: 'plus' }, `+${file.added}`),
      h('span', { class: 'minus' }, `−${file.removed}`),
    ),
    box,
  )
  if (open) drawOnce()
  return details
}

function drawFrom(file: FilePatch, from: number, box: HTMLElement): void {
  const language = languageOf(file.name)
  let [left, right] = numbersAt(file.lines, from)
  for (const text of file.lines.slice(from, from + drawnAtOnce)) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(text)
    if (hunk !== null) [left, right] = [Number(hunk[1]), Number(hunk[2])]
    const kind = kindOf(text, left)
    const shown = plain(kind === 'meta' || kind === 'hunk' ? text : text.slice(1))
    box.append(
      h(
        'div',
        { class: `dl ${kind}` },
        h('span', {
          class: 'ln',
          data: { n: kind === 'del' || kind === 'same' ? String(left) : '' },
        }),
        h('span', {
          class: 'ln',
          data: { n: kind === 'add' || kind === 'same' ? String(right) : '' },
        }),
        h('span', { class: 'sg' }, kind === 'add' ? '+' : kind === 'del' ? '−' : ' '),
        h(
          'span',
          { class: 'lc' },
          ...(kind === 'meta' || kind === 'hunk' ? [shown] : highlighted(shown, language)),
        ),
      ),
    )
    if (kind === 'del' || kind === 'same') left += 1
    if (kind === 'add' || kind === 'same') right += 1
  }
  const rest = file.lines.length - from - drawnAtOnce
  if (rest <= 0) return
  const more = h(
    'button',
    {
      type: 'button',
      class: 'more',
      on: { click: () => (more.remove(), drawFrom(file, from + drawnAtOnce, box)) },
    },
    `${count(rest)} more lines`,
  )
  box.append(more)
}

type Kind = 'meta' | 'hunk' | 'add' | 'del' | 'same'

/** Before the first hunk every line is of the header. */
function kindOf(text: string, left: number): Kind {
  if (text.startsWith('@@')) return 'hunk'
  if (left === 0 || text.startsWith('\\')) return 'meta'
  if (text.startsWith('+')) return 'add'
  if (text.startsWith('-')) return 'del'
  return text.startsWith(' ') || text === '' ? 'same' : 'meta'
}

function numbersAt(lines: readonly string[], from: number): [number, number] {
  let [left, right] = [0, 0]
  for (const text of lines.slice(0, from)) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(text)
    if (hunk !== null) [left, right] = [Number(hunk[1]), Number(hunk[2])]
    const kind = kindOf(text, left)
    if (kind === 'del' || kind === 'same') left += 1
    if (kind === 'add' || kind === 'same') right += 1
  }
  return [left, right]
}
