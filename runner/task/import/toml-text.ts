/** Writes TOML tables, for text that people go on editing. Keys without a value are left out. */

export type TomlValue = string | number | boolean | { readonly [key: string]: string }

export function tomlTable(
  name: string,
  values: Readonly<Record<string, TomlValue | undefined>>,
): string {
  const rows = Object.entries(values).flatMap(([key, value]) =>
    value === undefined ? [] : [`${key} = ${tomlValue(value)}\n`],
  )
  return `[${name}]\n${rows.join('')}`
}

function tomlValue(value: TomlValue): string {
  if (typeof value === 'string') return tomlString(value)
  if (typeof value !== 'object') return String(value)
  const pairs = Object.entries(value).map(([key, inner]) => `${key} = ${tomlString(inner)}`)
  return `{ ${pairs.join(', ')} }`
}

/** JSON's escapes are TOML's as well. */
export const tomlString = (text: string): string =>
  JSON.stringify(text).replaceAll('\u007f', '\\u007f')
