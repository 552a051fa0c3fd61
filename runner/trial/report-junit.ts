/**
 * JUnit XML as pytest and most runners write it. A document type is refused, so there are no entities but XML's own
 * five and character references, which are decoded here. Id: `classname::name`, or `name` without a class.
 */
import { XMLParser, XMLValidator } from 'fast-xml-parser'
import { ReportError, idText, messageText, seconds, type ReportedTest } from './reported.ts'

type Node = Readonly<Record<string, unknown>>

const parser = new XMLParser({
  preserveOrder: true,
  ignoreAttributes: false,
  attributeNamePrefix: '',
  processEntities: false,
  parseTagValue: false,
  parseAttributeValue: false,
  trimValues: false,
  ignoreDeclaration: true,
  ignorePiTags: true,
})

export function parseJunit(text: string): readonly ReportedTest[] {
  if (/<!(?:DOCTYPE|ENTITY)/i.test(text)) throw new ReportError('it has a document type; refused')
  const valid = XMLValidator.validate(text)
  if (valid !== true) throw new ReportError(`it is not well-formed XML: ${valid.err.msg}`)
  let document: readonly Node[]
  try {
    document = parser.parse(text) as readonly Node[]
  } catch (error) {
    throw new ReportError(`it can't be parsed: ${String(error)}`)
  }
  const roots = document.filter((node) => /^testsuites?$/.test(tagOf(node)))
  if (roots.length !== 1) throw new ReportError('it has no single <testsuites> or <testsuite>')
  const tests: ReportedTest[] = []
  const open: Node[] = [...roots]
  for (let node = open.pop(); node !== undefined; node = open.pop())
    for (const child of childrenOf(node))
      if (tagOf(child) === 'testcase') tests.push(testOf(child))
      else if (tagOf(child) === 'testsuite') open.push(child)
  return tests
}

const outcomes = { error: 'error', failure: 'failed', skipped: 'skipped' } as const

function testOf(node: Node): ReportedTest {
  const { name, classname, time } = attributesOf(node)
  if (name === undefined) throw new ReportError('it has a <testcase> without a name')
  const inner = childrenOf(node)
  const base = {
    id: idText(classname === undefined || classname === '' ? name : `${classname}::${name}`),
    durationMs: seconds(time),
  }
  for (const tag of ['error', 'failure', 'skipped'] as const) {
    const found = inner.find((child) => tagOf(child) === tag)
    if (found === undefined) continue
    const text = attributesOf(found)['message'] ?? textOf(found)
    return { ...base, outcome: outcomes[tag], message: messageText(text) }
  }
  return { ...base, outcome: 'passed', message: null }
}

/** In order-preserving form a node is `{<tag>: children, ':@': attributes}`. */
const tagOf = (node: Node): string => Object.keys(node).find((key) => key !== ':@') ?? ''

const childrenOf = (node: Node): readonly Node[] => {
  const children = node[tagOf(node)]
  return Array.isArray(children) ? (children as readonly Node[]) : []
}

function attributesOf(node: Node): Readonly<Record<string, string>> {
  const attributes = node[':@']
  if (typeof attributes !== 'object' || attributes === null) return {}
  return Object.fromEntries(
    Object.entries(attributes).map(([key, value]) => [key, decode(String(value))]),
  )
}

const textOf = (node: Node): string =>
  childrenOf(node)
    .map((child) => ('#text' in child ? decode(String(child['#text'])) : ''))
    .join('')

const named: Readonly<Record<string, string>> = {
  lt: '<',
  gt: '>',
  amp: '&',
  quot: '"',
  apos: "'",
}

const decode = (text: string): string =>
  text.replace(/&(?:#x([0-9a-f]{1,6})|#([0-9]{1,7})|(\w+));/gi, (whole, hex, decimal, name) => {
    if (typeof name === 'string') return named[name] ?? whole
    const point = typeof hex === 'string' ? Number.parseInt(hex, 16) : Number(decimal)
    return point <= 0x10ffff ? String.fromCodePoint(point) : '\ufffd'
  })
