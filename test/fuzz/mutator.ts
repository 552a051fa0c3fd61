/** Random bytes and texts for fuzzing, the same in every run: built from a seed, and spoilt in ways that find faults. */
import { Random } from '../runner/support/random.ts'

const interesting = [0, 1, 9, 10, 13, 32, 45, 46, 47, 58, 64, 127, 128, 192, 255]

export class Mutator extends Random {
  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.int(0, 255)))
  }

  /** So many parts, one of them perhaps empty. */
  cut(bytes: Buffer, parts: number): Buffer[] {
    const cuts = Array.from({ length: parts - 1 }, () => this.int(0, bytes.length)).toSorted(
      (a, b) => a - b,
    )
    return [0, ...cuts].map((from, index) => bytes.subarray(from, cuts[index] ?? bytes.length))
  }

  /** One edit or a few of a corpus' entry. */
  spoil(corpus: readonly Buffer[], most = 5): Buffer {
    let out: Buffer = Buffer.from(this.pick(corpus))
    for (let edits = this.int(1, most); edits > 0; edits -= 1) out = this.#edit(out, corpus)
    return out
  }

  #edit(bytes: Buffer, corpus: readonly Buffer[]): Buffer {
    const at = this.int(0, bytes.length)
    const [head, tail] = [bytes.subarray(0, at), bytes.subarray(at)]
    const copy = Buffer.from(bytes)
    switch (this.int(0, 7)) {
      case 0:
        if (at < copy.length) copy.writeUInt8(copy.readUInt8(at) ^ (1 << this.int(0, 7)), at)
        return copy
      case 1:
        if (at < copy.length) copy.writeUInt8(this.pick(interesting), at)
        return copy
      case 2:
        return Buffer.concat([head, this.bytes(this.int(1, 4)), tail])
      case 3:
        return Buffer.concat([head, Buffer.from([this.pick(interesting)]), tail])
      case 4:
        return Buffer.concat([head, tail.subarray(this.int(0, 8))])
      case 5:
        return Buffer.concat([head, head.subarray(-this.int(1, 16)), tail])
      case 6:
        return head
      default: {
        const other = this.pick(corpus)
        return Buffer.concat([head, other.subarray(this.int(0, other.length))])
      }
    }
  }
}
