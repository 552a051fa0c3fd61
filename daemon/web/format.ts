/** Numbers and times for people. Pure. */
export const count = (value: number): string => value.toLocaleString('en-US')

export function short(value: number): string {
  if (value < 10_000) return count(value)
  if (value < 1_000_000) return `${(value / 1000).toFixed(value < 100_000 ? 1 : 0)}k`
  return `${(value / 1_000_000).toFixed(value < 10_000_000 ? 2 : 1)}M`
}

export const dollars = (value: number): string =>
  `$${value === 0 ? '0' : value < 0.01 ? value.toFixed(4) : value < 10 ? value.toFixed(3) : value.toFixed(2)}`

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`
  const minutes = Math.floor(ms / 60_000)
  if (minutes < 60) return `${minutes} m ${pad(Math.floor((ms % 60_000) / 1000))} s`
  return `${Math.floor(minutes / 60)} h ${pad(minutes % 60)} m`
}

const pad = (value: number): string => String(value).padStart(2, '0')

export function clock(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds))
  const minutes = Math.floor(whole / 60)
  return minutes < 60
    ? `${minutes}:${pad(whole % 60)}`
    : `${Math.floor(minutes / 60)}:${pad(minutes % 60)}:${pad(whole % 60)}`
}

export function bytes(value: number): string {
  if (value < 1024) return `${value} B`
  const units = ['KiB', 'MiB', 'GiB', 'TiB']
  let size = value / 1024
  let unit = 0
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024
    unit += 1
  }
  return `${size.toFixed(size < 10 ? 1 : 0)} ${units[unit] ?? ''}`
}

/** Local day and time, without what is the same for all readers. */
export function instant(iso: string): string {
  const date = new Date(iso)
  if (Number.isNaN(date.getTime())) return iso
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`
  return `${day} ${timeOfDay(iso)}`
}

export function timeOfDay(iso: string): string {
  const date = new Date(iso)
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`
}

export const percent = (part: number): string =>
  `${(part * 100).toFixed(part === 0 || part === 1 ? 0 : 1)} %`

/** `{code}`, `{signal}` or unknown. */
export function exitText(exit: unknown): string {
  if (exit === null || exit === undefined) return 'running'
  if (typeof exit === 'object' && 'code' in exit) return `exit ${String(exit.code)}`
  if (typeof exit === 'object' && 'signal' in exit) return `signal ${String(exit.signal)}`
  return 'exit unknown'
}

export const exitGood = (exit: unknown): boolean =>
  typeof exit === 'object' && exit !== null && 'code' in exit && exit.code === 0
