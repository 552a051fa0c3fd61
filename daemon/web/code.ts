/** Highlighting by highlight.js, whose tokens become elements here: its HTML is never used. */
import hljs from 'highlight.js/lib/core'
import { h } from './dom.ts'

interface TokenNode {
  readonly scope?: string
  readonly children: readonly (TokenNode | string)[]
}

const languages: Readonly<Record<string, string>> = {
  py: 'python',
  pyi: 'python',
  sh: 'bash',
  bash: 'bash',
  json: 'json',
  diff: 'diff',
  patch: 'diff',
}
const longest = 2_000

export const languageOf = (file: string): string | null =>
  languages[/\.(\w+)$/.exec(file)?.[1]?.toLowerCase() ?? ''] ?? null

export function highlighted(code: string, language: string | null): (Node | string)[] {
  if (language === null || code.length > longest) return [code]
  try {
    const result = hljs.highlight(code, { language, ignoreIllegals: true })
    const { rootNode } = result._emitter as unknown as { rootNode: TokenNode }
    return nodes(rootNode)
  } catch {
    return [code]
  }
}

function nodes({ children }: TokenNode): (Node | string)[] {
  return children.map((child) =>
    typeof child === 'string'
      ? child
      : h('span', { class: `hl-${(child.scope ?? '').split('.')[0] ?? ''}` }, ...nodes(child)),
  )
}
