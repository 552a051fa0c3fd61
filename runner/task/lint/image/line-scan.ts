/** Follows one file's lines, chunk by chunk, and says which shingles occur in it. Keeps two lines and a rest. */
import type { Fingerprints, ShinglePlace } from './fingerprint.ts'

/** A line without end is cut here: minified code, not a test. */
const maxRest = 1024 * 1024

export class LineScan {
  readonly #prints: Fingerprints
  readonly #onHit: (place: ShinglePlace) => void
  #rest = ''
  #first = ''
  #second = ''

  constructor(prints: Fingerprints, onHit: (place: ShinglePlace) => void) {
    this.#prints = prints
    this.#onHit = onHit
  }

  /** Latin1 text. */
  push(text: string): void {
    const whole = this.#rest + text
    let from = 0
    for (let end = whole.indexOf('\n'); end !== -1; end = whole.indexOf('\n', from)) {
      this.#line(whole.slice(from, end))
      from = end + 1
    }
    this.#rest = whole.slice(from)
    if (this.#rest.length > maxRest) this.#rest = ''
  }

  end(): void {
    this.#line(this.#rest)
    this.#rest = ''
  }

  #line(raw: string): void {
    // A patch that lies in the image says the same, behind a plus.
    const line = (raw.startsWith('+') ? raw.slice(1) : raw).trim()
    if (line === '') return
    const places = this.#prints.byLine.get(line)
    if (places !== undefined)
      for (const place of places)
        if (
          place.before.length === 0 ||
          (place.before[0] === this.#first && place.before[1] === this.#second)
        )
          this.#onHit(place)
    this.#first = this.#second
    this.#second = line
  }
}
