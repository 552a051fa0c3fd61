/**
 * The keys that leave a session: one or more, by default two, so that none is lost to the program. The first is held
 * until the next comes; pressed twice it goes to the program once. What is pasted is never taken for them.
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

export class DetachKeys {
  readonly #keys: readonly number[]
  #matched = 0
  #pasting = false
  /** The end of what was typed, for marks of a paste that are cut in two. */
  #tail = Buffer.alloc(0)

  constructor(keys: readonly number[]) {
    this.#keys = keys
  }

  /** What goes to the program; `detach` when the keys were typed, and what follows them is dropped. */
  push(typed: Buffer): { readonly bytes: Buffer; readonly detach: boolean } {
    const out: number[] = []
    for (const byte of typed) {
      this.#followPaste(byte)
      if (!this.#pasting && this.#take(byte, out)) return { bytes: Buffer.from(out), detach: true }
      if (this.#pasting) out.push(byte)
    }
    return { bytes: Buffer.from(out), detach: false }
  }

  #take(byte: number, out: number[]): boolean {
    if (byte === this.#keys[this.#matched]) {
      this.#matched += 1
      return this.#matched === this.#keys.length
    }
    const held = this.#keys.slice(0, this.#matched)
    this.#matched = 0
    // The first one twice: once is meant for the program.
    if (held.length === 1 && byte === held[0]) {
      out.push(byte)
      return false
    }
    out.push(...held)
    if (byte === this.#keys[0]) this.#matched = 1
    else out.push(byte)
    return this.#matched === this.#keys.length
  }

  #followPaste(byte: number): void {
    this.#tail = Buffer.concat([this.#tail, Buffer.from([byte])]).subarray(-pasteStart.length)
    if (this.#tail.equals(pasteStart)) this.#pasting = true
    else if (this.#tail.equals(pasteEnd)) this.#pasting = false
  }
}
