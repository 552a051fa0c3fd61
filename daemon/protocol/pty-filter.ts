/**
 * Between a session's output and a person's own terminal: what agents print is hostile. Passed are text, colours, cursor
 * movement and modes. Dropped is whatever would make that terminal answer (device attributes, reports, queries), for the
 * answer would be typed into the session; what reaches beyond its window (clipboard, title, notifications, palette,
 * files, window operations), device control strings whole; links that aren't http or https. `plain` passes text alone, lines ended by newlines.
 * Works on bytes, in pieces cut anywhere, and needs nothing of Node.
 */
const ESC = 0x1b
const BEL = 0x07
/** Of a sequence that is not over yet; beyond it, it is dropped to its end. */
const longestBytes = 4096

type State = 'text' | 'escape' | 'csi' | 'string' | 'stringEscape' | 'c1'

export class TerminalFilter {
  readonly #plain: boolean
  #state: State = 'text'
  /** The sequence so far, with its introducer. */
  #held: number[] = []
  #tooLong = false
  /** Private modes as the passed sequences set them. */
  readonly #modes = new Map<number, boolean>()
  #kitty = 0
  /** `plain`: a carriage return that may belong to the end of a line. */
  #return = false

  constructor({ plain = false }: { plain?: boolean } = {}) {
    this.#plain = plain
  }

  push(bytes: Uint8Array): Uint8Array {
    // A sequence that is held from before may come out as well.
    const out = new Uint8Array(bytes.length + this.#held.length + 3)
    let length = 0
    const put = (values: ArrayLike<number>): void => {
      out.set(values, length)
      length += values.length
    }
    for (let at = 0; at < bytes.length; at += 1) {
      const byte = bytes[at] ?? 0
      if (this.#state === 'text') {
        if (byte === ESC) this.#begin('escape', byte)
        else if (byte === 0xc2) this.#begin('c1', byte)
        else if (byte >= 0x20 ? byte !== 0x7f : this.#passesControl(byte)) {
          if (this.#plain) length = this.#endLine(byte, out, length)
          if (byte !== 0x0d || !this.#plain) out[length++] = byte
        }
        continue
      }
      this.#next(byte, put)
    }
    return out.subarray(0, length)
  }

  /** What puts a terminal back that has got all that was passed. */
  restore(): string {
    const parts: string[] = []
    for (const [mode, on] of this.#modes) {
      const normally = mode === 25 || mode === 7
      if (on !== normally) parts.push(`\u001B[?${mode}${normally ? 'h' : 'l'}`)
    }
    for (let left = this.#kitty; left > 0; left -= 1) parts.push('\u001B[<u')
    this.#modes.clear()
    this.#kitty = 0
    // Resetting the margins moves the cursor.
    return `${parts.join('')}\u001B7\u001B[r\u001B8\u001B[0m\u001B(B\u001B>\u001B[0 q`
  }

  /** A terminal ends lines with both; text with one. */
  #endLine(byte: number, out: Uint8Array, length: number): number {
    if (byte === 0x0d) this.#return = true
    else {
      if (this.#return && byte !== 0x0a) out[length++] = 0x0d
      this.#return = false
    }
    return length
  }

  #passesControl(byte: number): boolean {
    if (this.#plain) return byte === 0x09 || byte === 0x0a || byte === 0x0d
    return byte >= 0x07 && byte <= 0x0d
  }

  #begin(state: State, byte: number): void {
    this.#state = state
    this.#held = [byte]
    this.#tooLong = false
  }

  #end(put: ((values: ArrayLike<number>) => void) | null): void {
    if (put !== null && !this.#tooLong) put(this.#held)
    this.#held = []
    this.#state = 'text'
  }

  #hold(byte: number): void {
    if (this.#held.length < longestBytes) this.#held.push(byte)
    else this.#tooLong = true
  }

  #next(byte: number, put: (values: ArrayLike<number>) => void): void {
    switch (this.#state) {
      case 'c1':
        // U+0080 to U+009F: terminals obey them as they do ESC and a letter.
        this.#hold(byte)
        this.#end(byte >= 0x80 && byte <= 0x9f ? null : put)
        return
      case 'escape':
        return this.#afterEscape(byte, put)
      case 'csi':
        if (byte === ESC) return this.#begin('escape', byte)
        if (byte === 0x18 || byte === 0x1a) return this.#end(null)
        // Controls inside of a sequence are obeyed by terminals at once; here they end nothing and do nothing.
        if (byte < 0x20) return
        this.#hold(byte)
        if (byte >= 0x40 && byte <= 0x7e) this.#end(this.#passesCsi() ? put : null)
        return
      case 'string':
        if (byte === BEL || byte === 0x18 || byte === 0x1a)
          return byte === BEL ? this.#endString(put) : this.#end(null)
        if (byte === ESC) this.#state = 'stringEscape'
        else this.#hold(byte)
        return
      case 'stringEscape':
        if (byte === 0x5c) return this.#endString(put)
        // Any other escape ends the string without effect and begins anew.
        this.#begin('escape', ESC)
        return this.#afterEscape(byte, put)
      case 'text':
    }
  }

  #afterEscape(byte: number, put: (values: ArrayLike<number>) => void): void {
    if (byte === ESC) return this.#begin('escape', byte)
    if (byte < 0x20) return this.#end(null)
    this.#hold(byte)
    if (this.#held.length === 2) {
      if (byte === 0x5b) {
        this.#state = 'csi'
        return
      }
      // ] OSC, P DCS, _ APC, ^ PM, X SOS
      if ([0x5d, 0x50, 0x5f, 0x5e, 0x58].includes(byte)) {
        this.#state = 'string'
        return
      }
    }
    // Intermediates (charsets and the like) go on; a final byte ends.
    if (byte >= 0x20 && byte <= 0x2f) return
    // Z asks what terminal this is; c, 7, 8, D, E, H, M, =, > and charsets are harmless.
    this.#end(byte === 0x5a || this.#plain ? null : put)
  }

  #passesCsi(): boolean {
    if (this.#plain) return false
    const text = String.fromCharCode(...this.#held.slice(2))
    const final = text.at(-1) ?? ''
    const body = text.slice(0, -1)
    switch (final) {
      case 'c': // device attributes
      case 'n': // reports
      case 't': // window operations
      case 'x': // terminal parameters
      case 'y':
      case 'i': // printing
        return false
      case 'p':
        // `$p` asks for a mode; `!p` resets.
        return !body.includes('$')
      case 'q':
        // `>q` asks for the version; ` q` is the cursor's shape.
        return !body.startsWith('>')
      case 'u':
        // `?u` asks for the keyboard's flags.
        if (body.startsWith('?')) return false
        if (body.startsWith('>')) this.#kitty += 1
        if (body.startsWith('<')) this.#kitty = Math.max(0, this.#kitty - 1)
        return true
      case 'w': // DECRQPSR and rectangles
      case 'z':
      case '{':
      case '|':
      case '}':
      case '~':
      case '*':
        return false
      case 'h':
      case 'l':
        this.#note(body, final === 'h')
        return true
      case 'm':
        // `?m` asks; `>m` sets the keyboard's modifiers.
        return !body.startsWith('?')
      default:
        return !body.includes('$')
    }
  }

  #note(body: string, on: boolean): void {
    if (!body.startsWith('?')) return
    for (const mode of body.slice(1).split(/[;:]/)) {
      const number = Number(mode)
      if (Number.isInteger(number) && number > 0) this.#modes.set(number, on)
    }
  }

  /** Of all strings only links pass, to the web. */
  #endString(put: (values: ArrayLike<number>) => void): void {
    const isLink =
      !this.#plain &&
      this.#held[1] === 0x5d &&
      this.#held[2] === 0x38 &&
      this.#held[3] === 0x3b &&
      /^8;[\x20-\x3a\x3c-\x7e]*;(?:https?:\/\/[\x21-\x7e]+)?$/.test(
        String.fromCharCode(...this.#held.slice(2)),
      )
    if (isLink) {
      this.#held.push(ESC, 0x5c)
      return this.#end(put)
    }
    this.#end(null)
  }
}
