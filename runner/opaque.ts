/** Names that tell nothing: lower-case letters and digits that are not taken for each other, 5 bits a character. */
import { randomBytes } from 'node:crypto'

const letters = 'abcdefghijkmnpqrstuvwxyz23456789'

export const opaqueOf = (bytes: Uint8Array, length: number): string =>
  Array.from(bytes.subarray(0, length), (byte) => letters[byte % 32]).join('')

export const opaque = (length: number): string => opaqueOf(randomBytes(length), length)

/** Chosen before the lease exists. */
export const newLeaseId = (): string => `l${opaque(15)}`
