/** Where a key of a TOML document stands. The parser gives no places, so the text is searched, table by table. */

/** Names and indices from the root, as zod gives them. */
export type KeyPath = readonly PropertyKey[]

interface Place {
  readonly path: readonly string[]
  readonly line: number
}

/** 1-based: the line of the key, else of the first thing in it, else of the nearest table around it; null: nowhere. */
export function lineOfKey(text: string, path: KeyPath): number | null {
  const places = placesOf(text)
  for (let length = path.length; length > 0; length -= 1) {
    const wanted = path.slice(0, length).map(String)
    const found =
      places.find((place) => same(place.path, wanted)) ??
      places.find((place) => same(place.path.slice(0, length), wanted))
    if (found !== undefined) return found.line
  }
  return null
}

const same = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((name, index) => name === b[index])

function placesOf(text: string): Place[] {
  const places: Place[] = []
  const counts = new Map<string, number>()
  let table: string[] = []
  let quote: string | null = null
  text.split(/\r?\n/).forEach((raw, index) => {
    const line = index + 1
    if (quote !== null) {
      if (raw.includes(quote)) quote = null
      return
    }
    const header = /^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$/.exec(raw)
    if (header !== null && !raw.includes('=')) {
      const names = split(header[2] ?? '')
      if (header[1] === '[[') {
        const key = names.join('\0')
        const count = counts.get(key) ?? 0
        counts.set(key, count + 1)
        if (count === 0) places.push({ path: names, line })
        table = [...names, String(count)]
      } else table = names
      places.push({ path: table, line })
      return
    }
    const key = /^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=/.exec(
      raw,
    )
    if (key !== null) {
      const names = split(key[1] ?? '')
      for (let length = 1; length <= names.length; length += 1)
        places.push({ path: [...table, ...names.slice(0, length)], line })
      // Keys of an inline table stand on the same line.
      for (const inner of raw.slice(key[0].length).matchAll(/[{,]\s*([\w-]+)\s*=/g))
        places.push({ path: [...table, ...names, inner[1] ?? ''], line })
    }
    for (const mark of ['"""', "'''"])
      if (quote === null && raw.split(mark).length % 2 === 0) quote = mark
  })
  return places
}

const split = (text: string): string[] =>
  [...text.matchAll(/[\w-]+|"([^"]*)"|'([^']*)'/g)].map((match) => match[1] ?? match[2] ?? match[0])
