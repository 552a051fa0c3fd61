/**
 * A strict zod schema as rows of a reference table: one row for each key that a person can write, with its type, its
 * default and its description. Nested keys are written with dots; where a value has one of several shapes, a row says
 * which shape it belongs to.
 */
import { z } from 'zod'

/** What zod writes of a schema; only the keys that are read here. */
interface Node {
  readonly type?: string
  readonly description?: string
  readonly default?: unknown
  readonly const?: unknown
  readonly enum?: readonly unknown[]
  readonly properties?: Readonly<Record<string, Node>>
  readonly required?: readonly string[]
  readonly additionalProperties?: boolean | Node
  readonly items?: Node
  readonly anyOf?: readonly Node[]
  readonly oneOf?: readonly Node[]
  readonly minimum?: number
  readonly maximum?: number
  readonly exclusiveMinimum?: number
}

export interface Row {
  readonly key: string
  readonly type: string
  readonly fallback: string
  readonly meaning: string
}

/** `fallbacks` names defaults that depend on the host, by key. */
export function schemaRows(
  schema: z.ZodType,
  fallbacks: Readonly<Record<string, string>> = {},
): Row[] {
  const root = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as Node
  return objectRows(root, '', '').map((row) => ({
    ...row,
    fallback: fallbacks[row.key] ?? row.fallback,
  }))
}

function objectRows(node: Node, prefix: string, when: string): Row[] {
  return Object.entries(node.properties ?? {}).flatMap(([name, child]) => {
    const key = prefix === '' ? name : `${prefix}.${name}`
    return nodeRows(child, key, when, node.required?.includes(name) === true)
  })
}

function nodeRows(node: Node, key: string, when: string, required: boolean): Row[] {
  const shapes = node.oneOf ?? node.anyOf
  if (shapes?.every(isObject) === true)
    return [
      rowOf(node, key, when, required, 'one of the shapes below'),
      ...shapes.flatMap((shape) => objectRows(shape, key, joined(when, shapeName(shape)))),
    ]
  if (isObject(node)) {
    const inner = objectRows(node, key, when)
    const described = node.description !== undefined || required
    return described ? [rowOf(node, key, when, required, 'mapping'), ...inner] : inner
  }
  const { items } = node
  if (items !== undefined && isObject(items))
    return [
      rowOf(node, key, when, required, 'list of mappings'),
      ...objectRows(items, `${key}[]`, when),
    ]
  return [rowOf(node, key, when, required, typeText(node))]
}

const isObject = (node: Node): boolean => node.properties !== undefined

const joined = (a: string, b: string): string => [a, b].filter((part) => part !== '').join(', ')

/** A shape is told by its constant keys, or by its first key. */
function shapeName(shape: Node): string {
  const entries = Object.entries(shape.properties ?? {})
  const [name, node] = entries.find(([, { const: value }]) => value !== undefined) ?? []
  return name === undefined || node === undefined ? '' : `${name} ${JSON.stringify(node.const)}`
}

function rowOf(node: Node, key: string, when: string, required: boolean, type: string): Row {
  const words = node.description ?? ''
  return {
    key,
    type,
    fallback: required ? 'required' : fallbackText(key, node),
    meaning: when === '' ? words : `${when}${words === '' ? '' : `: ${words}`}`,
  }
}

function fallbackText(key: string, node: Node): string {
  const { default: value } = node
  if (value === undefined || (isObject(node) && JSON.stringify(value) === '{}')) return ''
  const text = `\`${JSON.stringify(value)}\``
  const size = typeof value === 'number' && key.endsWith('Bytes') ? binary(value) : ''
  return size === '' ? text : `${text} (${size})`
}

function binary(bytes: number): string {
  const units = ['GiB', 'MiB', 'KiB'] as const
  for (const [index, unit] of units.entries()) {
    const size = 1024 ** (3 - index)
    if (bytes >= size && bytes % size === 0) return `${bytes / size} ${unit}`
  }
  return ''
}

function typeText(node: Node): string {
  const shapes = node.oneOf ?? node.anyOf
  if (shapes !== undefined) return shapes.map(typeText).join(' or ')
  if (node.const !== undefined) return `\`${JSON.stringify(node.const)}\``
  if (node.enum !== undefined)
    return node.enum.map((value) => `\`${JSON.stringify(value)}\``).join(', ')
  switch (node.type) {
    case 'array':
      return `list of ${node.items === undefined ? 'values' : typeText(node.items)}`
    case 'object':
      return typeof node.additionalProperties === 'object' ? 'map of names to values' : 'mapping'
    case 'integer':
    case 'number':
      return numberText(node)
    case undefined:
      return 'any'
    default:
      return node.type
  }
}

function numberText({ type, minimum, maximum, exclusiveMinimum }: Node): string {
  const name = type === 'integer' ? 'integer' : 'number'
  const least = exclusiveMinimum === undefined ? minimum : undefined
  const most = maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum
  const above = exclusiveMinimum === undefined ? [] : [`above ${exclusiveMinimum}`]
  if (least !== undefined && most !== undefined) return `${name}, ${least} to ${most}`
  const bounds = [
    ...above,
    ...(least === undefined || least === Number.MIN_SAFE_INTEGER ? [] : [`from ${least}`]),
    ...(most === undefined ? [] : [`to ${most}`]),
  ]
  return bounds.length === 0 ? name : `${name}, ${bounds.join(' ')}`
}
