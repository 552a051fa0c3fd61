/** The Range header of one request, as far as clients of the Hub use it: one part, from a position or a suffix. */
export type Range =
  | { readonly kind: 'whole' }
  /** `end` is not part of it. */
  | { readonly kind: 'part'; readonly start: number; readonly end: number }
  | { readonly kind: 'unsatisfiable' }

/** What isn't one plain range is answered whole, as the standard has it; so is a range of another version. */
export function parseRange(
  headers: { readonly range?: string | undefined; readonly ifRange?: string | undefined },
  { size, etag }: { readonly size: number; readonly etag: string },
): Range {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(headers.range?.trim() ?? '')
  const [, from = '', to = ''] = match ?? []
  if (match === null || (from === '' && to === '')) return { kind: 'whole' }
  if (headers.ifRange !== undefined && headers.ifRange !== etag) return { kind: 'whole' }
  if (from === '') {
    const length = Math.min(Number(to), size)
    if (length === 0) return { kind: 'unsatisfiable' }
    return { kind: 'part', start: size - length, end: size }
  }
  const start = Number(from)
  const end = to === '' ? size : Math.min(Number(to) + 1, size)
  if (to !== '' && Number(to) < start) return { kind: 'whole' }
  return start < size ? { kind: 'part', start, end } : { kind: 'unsatisfiable' }
}
