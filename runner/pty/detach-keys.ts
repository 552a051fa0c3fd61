/**
 * The keys that leave a session, and those that ask for control or hand it over: one or more, by default two, so that
 * none is lost to the program. The first is held until the next comes; pressed twice it goes to the program once. What
 * is pasted is never taken for them.
 */
export const defaultDetachKeys = 'ctrl-],.'

const pasteStart = Buffer.from('\u001B[200~')
const pasteEnd = Buffer.from('\u001B[201~')

/** `ctrl-],.`, `ctrl-p,ctrl-q`, `ctrl-a,d`; null for what is none. */
export function parseDetachKeys(text: string): number[] | null {
  const keys = text.split(/,(?=.)/).map((key) => {
    const ctrl = /^ctrl-([a-z@[\\\]^_])$/i.exec(key)?.[1]
    if (ctrl !== undefined) return (ctrl.toUpperCase().codePointAt(0) ?? 0) & 0x1f
    return /^[\x21-\x7e]$/.test(key) ? (key.codePointAt(0) ?? null) : null
  })
  const all = keys.filter((key) => key !== null)
  const [first] = all
  // A plain letter that begins it could not be typed any more; Esc begins every function key.
  if (all.length !== keys.length || first === undefined || first >= 0x20 || first === 0x1b)
    return null
  return all
}

export function keysForPeople(text: string): string {
  return text
    .split(/,(?=.)/)
    .map((key) => key.replace(/^ctrl-/i, 'Ctrl-'))
    .join(' then ')
}

/** What asks for control and hands it over: the first of the detach keys, then c; null where that could not be told apart. */
export function controlKeysBeside(detachKeys: string): string | null {
  const [first = '', ...more] = detachKeys.split(/,(?=.)/)
  const keys = `${more.length > 0 ? first : 'ctrl-]'},c`
  return areApart(parseDetachKeys(detachKeys), parseDetachKeys(keys)) ? keys : null
}

/** Neither is the beginning of the other. */
export function areApart(one: readonly number[] | null, other: readonly number[] | null): boolean {
  if (one === null || other === null) return false
  return one.slice(0, other.length).some((key, at) => key !== other[at])
}

export interface Watched {
  readonly detach: readonly number[]
  readonly control?: readonly number[] | undefined
}

export class WatchedKeys {
  readonly #watched: readonly (readonly ['detach' | 'control', readonly number[]])[]
  #held: number[] = []
  #pasting = false
  /** The end of what was typed, for marks of a paste that are cut in two. */
  #tail = Buffer.alloc(0)

  constructor({ detach, control }: Watched) {
    this.#watched = [
      ['detach', detach],
      ...(control === undefined ? [] : [['control', control] as const]),
    ]
  }

  /** What goes to the program, up to the keys that were pressed; `rest` was typed after these. */
  push(typed: Buffer): {
    readonly bytes: Buffer
    readonly pressed: 'detach' | 'control' | null
    readonly rest: Buffer
  } {
    const out: number[] = []
    for (const [at, byte] of typed.entries()) {
      this.#followPaste(byte)
      const pressed = this.#pasting ? null : this.#take(byte, out)
      if (pressed !== null)
        return { bytes: Buffer.from(out), pressed, rest: typed.subarray(at + 1) }
      if (this.#pasting) out.push(byte)
    }
    return { bytes: Buffer.from(out), pressed: null, rest: Buffer.alloc(0) }
  }

  #take(byte: number, out: number[]): 'detach' | 'control' | null {
    const held = this.#held
    if (this.#begins([...held, byte])) return this.#pressed([...held, byte])
    this.#held = []
    // The first one twice: once is meant for the program.
    if (held.length === 1 && byte === held[0]) {
      out.push(byte)
      return null
    }
    out.push(...held)
    if (this.#begins([byte])) return this.#pressed([byte])
    out.push(byte)
    return null
  }

  #begins(keys: readonly number[]): boolean {
    return this.#watched.some(([, all]) => keys.every((key, at) => key === all[at]))
  }

  #pressed(keys: number[]): 'detach' | 'control' | null {
    const whole = this.#watched.find(
      ([, all]) => all.length === keys.length && all.every((key, at) => key === keys[at]),
    )
    this.#held = whole === undefined ? keys : []
    return whole?.[0] ?? null
  }

  #followPaste(byte: number): void {
    this.#tail = Buffer.concat([this.#tail, Buffer.from([byte])]).subarray(-pasteStart.length)
    if (this.#tail.equals(pasteStart)) this.#pasting = true
    else if (this.#tail.equals(pasteEnd)) this.#pasting = false
  }
}
