/**
 * What both backends know of a session's program: how it is described, what it is told of its terminal, and what can be
 * done to it from the host's side, through the container's cgroup, without asking the engine.
 */
import { readlinkSync } from 'node:fs'
import { Cgroup } from '../engine/cgroup.ts'
import { markerOf, ticksNow, type Tree } from '../exec/kill-tree.ts'
import type { Size } from './resizer.ts'

export interface PtySpec {
  readonly container: string
  /** Host pid of the container's PID 1; null where the host can't see its processes. */
  readonly initPid: number | null
  readonly pty: string
  readonly mark: string
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly user?: string | undefined
  readonly cwd?: string | undefined
  readonly size: Size
}

/** What programs are told of the terminal. Never COLUMNS and LINES: they would pin its size. */
const terminalEnv = { TERM: 'xterm-256color', COLORTERM: 'truecolor', LANG: 'C.UTF-8' }

export const killDeadlineMs = 10_000

/** `NAME=value`, the marker by which its processes are found among them. */
export const environmentOf = ({ pty, env }: PtySpec): string[] => [
  ...Object.entries({ ...terminalEnv, ...env }).map(([name, value]) => `${name}=${value}`),
  markerOf(pty),
]

/** Call before it is started. */
export const treeOf = ({ pty, initPid }: PtySpec): Tree | null =>
  initPid === null ? null : { execId: pty, cgroup: Cgroup.ofPid(initPid), startedTicks: ticksNow() }

export function holdsTerminal(pid: number): boolean {
  return ['0', '1', '2'].some((fd) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${fd}`).startsWith('/dev/pts/')
    } catch {
      return false
    }
  })
}
