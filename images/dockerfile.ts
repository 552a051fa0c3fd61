/** Which outside images a Dockerfile starts from or copies from: all that its build can pull. Pure. */

/** References in order of first use, without stages, stage numbers and `scratch`; ARG defaults before FROM are filled in. */
export function outsideImages(dockerfile: string): string[] {
  const stages = new Set<string>()
  const defaults = new Map<string, string>()
  const found = new Set<string>()
  let stageSeen = false
  const add = (reference: string): void => {
    if (reference !== 'scratch' && !stages.has(reference.toLowerCase())) found.add(reference)
  }
  for (const line of logicalLines(dockerfile)) {
    const [instruction = '', ...words] = line.split(/\s+/)
    const operands = words.filter((word) => !word.startsWith('--'))
    if (/^arg$/i.test(instruction) && !stageSeen)
      for (const word of words) {
        const [name = '', ...value] = word.split('=')
        if (value.length > 0) defaults.set(name, value.join('=').replace(/^(["'])(.*)\1$/, '$2'))
      }
    if (/^from$/i.test(instruction)) {
      stageSeen = true
      add(fill(operands[0] ?? '', defaults))
      if (/^as$/i.test(operands[1] ?? '')) stages.add((operands[2] ?? '').toLowerCase())
    }
    if (/^(copy|add|run)$/i.test(instruction))
      for (const word of words) {
        const from = /^--(?:from=|mount=(?:.*,)?from=)([^,]+)/.exec(word)?.[1]
        if (from !== undefined && !/^\d+$/.test(from)) add(from)
      }
  }
  return [...found]
}

function* logicalLines(text: string): Generator<string> {
  let joined = ''
  for (const line of text.split(/\r?\n/)) {
    if (/^\s*#/.test(line)) continue
    const open = line.endsWith('\\')
    joined += open ? `${line.slice(0, -1)} ` : line
    if (open) continue
    if (joined.trim() !== '') yield joined.trim()
    joined = ''
  }
  if (joined.trim() !== '') yield joined.trim()
}

const fill = (text: string, defaults: ReadonlyMap<string, string>): string =>
  text.replace(
    /\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))/g,
    (whole, braced: string | undefined, fallback: string | undefined, bare: string | undefined) =>
      defaults.get(braced ?? bare ?? '') ?? fallback ?? whole,
  )
