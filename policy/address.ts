/**
 * Classes of IP addresses. Only `public` may be dialed; the rest is refused by its class, from tables of our own:
 * the runtime's block list knows neither IPv4-compatible nor NAT64, 6to4 and Teredo forms, which carry a
 * second address inside. IPv6 is public only within 2000::/3. Source: the special-purpose registries of RFC 6890.
 */
export type AddressClass =
  | 'public'
  | 'invalid'
  | 'unspecified'
  | 'loopback'
  | 'private'
  | 'shared'
  | 'link_local'
  | 'metadata'
  | 'multicast'
  | 'broadcast'
  | 'documentation'
  | 'benchmark'
  | 'reserved'
  | 'embedded'

type Range = readonly [prefix: string, bits: number, kind: AddressClass]

/** The first range that holds the address gives its class. */
const ranges4: readonly Range[] = [
  ['169.254.169.254', 32, 'metadata'],
  ['100.100.100.200', 32, 'metadata'],
  ['168.63.129.16', 32, 'metadata'],
  ['192.0.0.192', 32, 'metadata'],
  ['255.255.255.255', 32, 'broadcast'],
  ['0.0.0.0', 8, 'unspecified'],
  ['10.0.0.0', 8, 'private'],
  ['100.64.0.0', 10, 'shared'],
  ['127.0.0.0', 8, 'loopback'],
  ['169.254.0.0', 16, 'link_local'],
  ['172.16.0.0', 12, 'private'],
  ['192.0.0.0', 24, 'reserved'],
  ['192.0.2.0', 24, 'documentation'],
  ['192.31.196.0', 24, 'reserved'],
  ['192.52.193.0', 24, 'reserved'],
  ['192.88.99.0', 24, 'reserved'],
  ['192.168.0.0', 16, 'private'],
  ['192.175.48.0', 24, 'reserved'],
  ['198.18.0.0', 15, 'benchmark'],
  ['198.51.100.0', 24, 'documentation'],
  ['203.0.113.0', 24, 'documentation'],
  ['224.0.0.0', 4, 'multicast'],
  ['240.0.0.0', 4, 'reserved'],
]

const ranges6: readonly Range[] = [
  ['::', 128, 'unspecified'],
  ['::1', 128, 'loopback'],
  ['::ffff:0:0', 96, 'embedded'], // IPv4-mapped
  ['::ffff:0:0:0', 96, 'embedded'], // IPv4-translated
  ['::', 96, 'embedded'], // IPv4-compatible
  ['64:ff9b::', 96, 'embedded'], // NAT64
  ['64:ff9b:1::', 48, 'embedded'], // NAT64, local use
  ['100::', 64, 'reserved'], // discard
  ['fd00:ec2::254', 128, 'metadata'],
  ['fd20:ce::254', 128, 'metadata'],
  ['fc00::', 7, 'private'],
  ['fe80::', 10, 'link_local'],
  ['fec0::', 10, 'private'], // site-local
  ['ff00::', 8, 'multicast'],
  ['2001::', 32, 'embedded'], // Teredo
  ['2001:db8::', 32, 'documentation'],
  ['2001:2::', 48, 'benchmark'],
  ['2001::', 23, 'reserved'], // IETF protocol assignments
  ['2002::', 16, 'embedded'], // 6to4
  ['2620:4f:8000::', 48, 'reserved'], // AS112
  ['3fff::', 20, 'documentation'],
  ['2000::', 3, 'public'],
]

interface Compiled {
  readonly value: bigint
  readonly shift: bigint
  readonly kind: AddressClass
}

const compile = (
  ranges: readonly Range[],
  width: number,
  parse: (text: string) => bigint | null,
): Compiled[] =>
  ranges.map(([prefix, bits, kind]) => {
    const value = parse(prefix)
    if (value === null) throw new Error(`bad prefix ${prefix}`)
    const shift = BigInt(width - bits)
    return { value: value >> shift, shift, kind }
  })

/** Dotted decimal only: four numbers without leading zeros. */
function parseIpv4(text: string): bigint | null {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text)
  if (match === null) return null
  let value = 0n
  for (const part of match.slice(1)) {
    if (Number(part) > 255 || (part.length > 1 && part.startsWith('0'))) return null
    value = (value << 8n) | BigInt(part)
  }
  return value
}

function parseIpv6(text: string): bigint | null {
  let rest = text
  const groups = (part: string): bigint[] | null => {
    if (part === '') return []
    const words = part.split(':')
    if (words.some((word) => !/^[0-9A-Fa-f]{1,4}$/.test(word))) return null
    return words.map((word) => BigInt(`0x${word}`))
  }
  const dotted = rest.slice(rest.lastIndexOf(':') + 1)
  if (dotted.includes('.')) {
    const low = parseIpv4(dotted)
    if (low === null) return null
    const words = `${(low >> 16n).toString(16)}:${(low & 0xffffn).toString(16)}`
    rest = rest.slice(0, rest.length - dotted.length) + words
  }
  const halves = rest.split('::')
  if (halves.length > 2) return null
  const head = groups(halves[0] ?? '')
  const tail = groups(halves[1] ?? '')
  if (head === null || tail === null) return null
  const missing = 8 - head.length - tail.length
  if (halves.length === 1 ? missing !== 0 : missing < 1) return null
  const all = [...head, ...Array<bigint>(missing).fill(0n), ...tail]
  return all.reduce((value, word) => (value << 16n) | word, 0n)
}

const compiled4 = compile(ranges4, 32, parseIpv4)
const compiled6 = compile(ranges6, 128, parseIpv6)

/** `invalid` for everything but dotted decimal and IPv6 without a zone. */
export function classifyAddress(address: string): AddressClass {
  const four = parseIpv4(address)
  if (four !== null) return find(compiled4, four) ?? 'public'
  const six = parseIpv6(address)
  if (six !== null) return find(compiled6, six) ?? 'reserved'
  return 'invalid'
}

const find = (ranges: readonly Compiled[], value: bigint): AddressClass | undefined =>
  ranges.find((range) => value >> range.shift === range.value)?.kind

export const isPublic = (address: string): boolean => classifyAddress(address) === 'public'
