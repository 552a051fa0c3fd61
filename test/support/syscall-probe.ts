/**
 * A static x86-64 program that makes one system call and exits with its errno, or 0 for success. Made byte by byte, so
 * that a test of what a sandbox's kernel filter refuses needs no compiler and no interpreter in the image.
 */

/** `int80`: by the 32-bit entry, where arguments go in ebx and ecx. */
export type Entry = 'syscall' | 'int80'

const base = 0x400000
const elfHeaderBytes = 64
const programHeaderBytes = 56
const x8664 = 62
const exitNumber = 60

/** Opcodes of `mov reg, imm32` for rdi, rsi, rdx, r10. */
const argumentMoves: Readonly<Record<Entry, readonly (readonly number[])[]>> = {
  syscall: [[0xbf], [0xbe], [0xba], [0x41, 0xba]],
  int80: [[0xbb], [0xb9], [0xba]],
}

/** mov edi, eax · neg edi · test eax, eax · js over the next · xor edi, edi */
const negateAndTest = [0x89, 0xc7, 0xf7, 0xdf, 0x85, 0xc0, 0x78, 0x02, 0x31, 0xff]

export function syscallProbe(
  number: number,
  args: readonly number[],
  entry: Entry = 'syscall',
): Buffer {
  const code = Buffer.from([
    ...args.flatMap((value, at) => [...(argumentMoves[entry][at] ?? []), ...imm32(value)]),
    0xb8,
    ...imm32(number),
    ...(entry === 'syscall' ? [0x0f, 0x05] : [0xcd, 0x80]),
    ...negateAndTest,
    0xb8,
    ...imm32(exitNumber),
    0x0f,
    0x05,
  ])
  const offset = elfHeaderBytes + programHeaderBytes
  const elf = Buffer.alloc(offset)
  elf.write('\x7fELF\x02\x01\x01', 'latin1')
  elf.writeUInt16LE(2, 16)
  elf.writeUInt16LE(x8664, 18)
  elf.writeUInt32LE(1, 20)
  elf.writeBigUInt64LE(BigInt(base + offset), 24)
  elf.writeBigUInt64LE(BigInt(elfHeaderBytes), 32)
  elf.writeUInt16LE(elfHeaderBytes, 52)
  elf.writeUInt16LE(programHeaderBytes, 54)
  elf.writeUInt16LE(1, 56)
  const header = elf.subarray(elfHeaderBytes)
  header.writeUInt32LE(1, 0)
  header.writeUInt32LE(5, 4)
  header.writeBigUInt64LE(BigInt(base), 16)
  header.writeBigUInt64LE(BigInt(base), 24)
  header.writeBigUInt64LE(BigInt(offset + code.length), 32)
  header.writeBigUInt64LE(BigInt(offset + code.length), 40)
  header.writeBigUInt64LE(0x1000n, 48)
  return Buffer.concat([elf, code])
}

function imm32(value: number): number[] {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32LE(value >>> 0)
  return [...bytes]
}
