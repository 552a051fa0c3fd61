/** How a process ended, from the one number that an engine has for it. */
import { constants } from 'node:os'
import type { Exit } from '../protocol/exec-frames.ts'

const firstSignalCode = 128
const nameOf = new Map(Object.entries(constants.signals).map(([name, number]) => [number, name]))

/**
 * Codes from 129 on are signals by the convention that shells and engines share; 128 + n of a number that is no signal
 * stays a code. A program that calls exit(137) itself can't be told from one that was killed.
 */
export function exitOfCode(code: number | null): Exit {
  if (code === null || !Number.isInteger(code)) return 'unknown'
  const signal = nameOf.get(code - firstSignalCode)
  return signal === undefined ? { code } : { signal }
}
