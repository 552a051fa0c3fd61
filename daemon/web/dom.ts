/**
 * Making elements. Text becomes text nodes and nothing is ever parsed as HTML: what an agent wrote can't become markup.
 * Attributes are a short list, and an address that is given to a link must be a path of ours.
 */
export type Child = Node | string | number | null | undefined | false

export interface Props {
  readonly class?: string
  readonly id?: string
  readonly title?: string
  readonly href?: string
  readonly type?: string
  readonly name?: string
  readonly value?: string
  readonly placeholder?: string
  readonly role?: string
  readonly tabindex?: number
  readonly disabled?: boolean
  readonly open?: boolean
  readonly selected?: boolean
  readonly checked?: boolean
  readonly colspan?: number
  readonly scope?: string
  readonly for?: string
  readonly min?: string
  readonly max?: string
  readonly step?: string
  readonly list?: string
  readonly autocomplete?: string
  readonly spellcheck?: string
  readonly datetime?: string
  readonly aria?: Readonly<Record<string, string | boolean>>
  readonly data?: Readonly<Record<string, string>>
  readonly on?: Readonly<Record<string, (event: Event) => void>>
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag)
  const { aria, data, on, ...attributes } = props
  for (const [name, value] of Object.entries(attributes)) set(element, name, value)
  for (const [name, value] of Object.entries(aria ?? {}))
    set(element, `aria-${name}`, String(value))
  for (const [name, value] of Object.entries(data ?? {})) set(element, `data-${name}`, value)
  for (const [name, listener] of Object.entries(on ?? {})) element.addEventListener(name, listener)
  append(element, children)
  return element
}

function set(element: Element, name: string, value: string | number | boolean | undefined): void {
  if (value === undefined || value === false) return
  if (name === 'href' && !/^\/(?!\/)|^#/.test(String(value))) return
  element.setAttribute(name, value === true ? '' : String(value))
}

export function append(parent: Node, children: readonly Child[]): void {
  for (const child of children)
    if (child instanceof Node) parent.appendChild(child)
    else if (child !== null && child !== undefined && child !== false)
      parent.appendChild(document.createTextNode(String(child)))
}

export function fill(parent: Element, ...children: readonly Child[]): void {
  parent.replaceChildren()
  append(parent, children)
}

const svgNamespace = 'http://www.w3.org/2000/svg'

export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string | number>> = {},
  ...children: readonly Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(svgNamespace, tag)
  for (const [name, value] of Object.entries(attributes)) set(element, name, value)
  append(element, children)
  return element
}

/** Sets text only where it differs, so that a selection in it survives. */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) node.textContent = text
}

/** At most one call a frame, and none once the page was left. */
export function onFrame(work: () => void, signal: AbortSignal): () => void {
  let asked = false
  return () => {
    if (asked || signal.aborted) return
    asked = true
    requestAnimationFrame(() => {
      asked = false
      if (!signal.aborted) work()
    })
  }
}

/** Until the page was left. */
export function every(ms: number, work: () => void, signal: AbortSignal): void {
  const timer = setInterval(work, ms)
  signal.addEventListener('abort', () => clearInterval(timer), { once: true })
}
