/**
 * Text that PyYAML reads back as exactly this value: JSON (a subset of YAML's flow style) with the two places bent
 * where PyYAML 1.1 differs: characters that it refuses raw are escaped, and a float with an exponent gets a dot,
 * without which it would be a string. A lone surrogate can't be sent to a model; it becomes U+FFFD.
 */
import type { z } from 'zod'

export type Json = z.core.util.JSONType

export function pyYaml(value: Json, indent = ''): string {
  if (typeof value === 'string') return quoted(value)
  if (typeof value === 'number') return numberText(value)
  if (value === null || typeof value === 'boolean') return String(value)
  const inner = `${indent}  `
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}']
  const items = Array.isArray(value)
    ? value.map((item) => pyYaml(item, inner))
    : Object.entries(value).map(([key, item]) => `${quoted(key)}: ${pyYaml(item, inner)}`)
  if (items.length === 0) return `${open}${close}`
  return `${open}\n${items.map((item) => `${inner}${item}`).join(',\n')}\n${indent}${close}`
}

function numberText(value: number): string {
  if (!Number.isFinite(value)) throw new RangeError(`${value} can't be written in a configuration`)
  return String(value).replace(/^(-?\d+)e/, '$1.0e')
}

/** What PyYAML doesn't print, and the three line breaks that only Unicode knows. */
// oxlint-disable-next-line no-control-regex
const unprintable = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g

const quoted = (text: string): string =>
  JSON.stringify(text.toWellFormed()).replace(
    unprintable,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
