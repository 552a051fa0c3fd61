/**
 * How the shell around the engine's command line tells that the command is over, with what status, and what it had to say
 * for itself: by a mark with a random name behind the last byte of the program's output, in the same stream, so that
 * nothing can be missed or come late. It begins with a byte that is in no text, for what may begin it is held back.
 */
export interface CommandEnd {
  readonly status: number
  /** What the command put out on stderr, which is never the program's. */
  readonly words: string
}

const first = 0xff

export class EndMark {
  readonly #prefix: Buffer
  #held: Buffer = Buffer.alloc(0)

  constructor(name: string) {
    this.#prefix = Buffer.concat([Buffer.from([first]), Buffer.from(`${name} `)])
  }

  /** What is held back, when nothing more comes. */
  get held(): Buffer {
    return this.#held
  }

  /** `end` is null until the mark was whole. */
  push(chunk: Buffer): { readonly output: Buffer; readonly end: CommandEnd | null } {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk])
    const at = bytes.indexOf(this.#prefix)
    const end = at < 0 ? -1 : bytes.indexOf(first, at + this.#prefix.length)
    if (end >= 0) {
      this.#held = Buffer.alloc(0)
      const text = bytes.toString('utf8', at + this.#prefix.length, end)
      const [digits = '', ...words] = text.split(' ')
      return {
        output: bytes.subarray(0, at),
        end: { status: Number(digits), words: words.join(' ') },
      }
    }
    const from = at >= 0 ? at : this.#beginning(bytes)
    this.#held = Buffer.from(bytes.subarray(from))
    return { output: bytes.subarray(0, from), end: null }
  }

  /** Where the mark may begin at the end of these bytes. */
  #beginning(bytes: Buffer): number {
    let at = bytes.indexOf(first, Math.max(0, bytes.length - this.#prefix.length + 1))
    while (at >= 0) {
      const length = bytes.length - at
      if (bytes.subarray(at).equals(this.#prefix.subarray(0, length))) return at
      at = bytes.indexOf(first, at + 1)
    }
    return bytes.length
  }
}
