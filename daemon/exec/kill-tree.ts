/**
 * Ends everything that one exec started, from the host's side: processes that carry its marker in their environment,
 * all that descend from them or from its first process, and, while no other exec runs in the container, orphans that
 * began after it and carry no marker at all. Double forks and new sessions change none of that.
 * Repeats until two passes find nobody; from the third pass on the whole group is stopped while it looks, so that
 * nothing can fork away.
 */
import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { kill } from '../engine/cgroup.ts'
import type { Cgroup } from '../engine/cgroup.ts'

const markerName = 'CLOSEDBOOK_EXEC'
const quietPasses = 2
const passMs = 3
const passesBeforeFreeze = 3

export function markerOf(execId: string): string {
  return `${markerName}=${execId}`
}

export interface Tree {
  readonly execId: string
  readonly cgroup: Cgroup
  /** Clock ticks since boot when the exec began, by `ticksNow`. */
  readonly startedTicks: number
}

export interface TreeKill {
  readonly killed: number
  /** False when the deadline came first. */
  readonly complete: boolean
}

/**
 * `over` says whether the exec's own end was seen; `rootPid` is its first process on the host, 0 if unknown; `alone`
 * says that no other exec of this container is live.
 */
export async function killTree(
  tree: Tree,
  options: { rootPid: number; alone: () => boolean; over: () => boolean; deadlineMs: number },
): Promise<TreeKill> {
  const known = new Set<number>(options.rootPid > 0 ? [options.rootPid] : [])
  const killed = new Set<number>()
  const deadline = performance.now() + options.deadlineMs
  let quiet = 0
  for (let pass = 0; performance.now() < deadline; pass += 1) {
    const freeze = pass >= passesBeforeFreeze && quiet === 0
    if (freeze) await tree.cgroup.freeze()
    try {
      const victims = findTree(tree, known, options.alone())
      for (const pid of victims) {
        known.add(pid)
        if (kill(pid)) killed.add(pid)
      }
      quiet = victims.length === 0 ? quiet + 1 : 0
    } finally {
      if (freeze) await tree.cgroup.thaw()
    }
    if (quiet >= quietPasses && options.over()) return { killed: killed.size, complete: true }
    await delay(passMs)
  }
  return { killed: killed.size, complete: false }
}

/** One signal to everything of the tree that can be known by its marker or its descent; for asking before killing. */
export function signalTree(tree: Tree, rootPid: number, signal: NodeJS.Signals): void {
  for (const pid of findTree(tree, new Set(rootPid > 0 ? [rootPid] : []), false))
    try {
      process.kill(pid, signal)
    } catch {
      // gone meanwhile
    }
}

/** Live processes that carry the exec's marker. */
export function marked(tree: Tree): number[] {
  const marker = markerOf(tree.execId)
  return tree.cgroup
    .pids()
    .filter((pid) => facts(pid) !== null && environment(pid)?.includes(marker) === true)
}

export interface Process {
  readonly pid: number
  readonly startedTicks: number
}

/** The exec's first process: its parent is none of the container's. null where it can't be told, or is over. */
export function rootOf(tree: Tree): Process | null {
  const members = new Set(tree.cgroup.pids())
  for (const pid of marked(tree)) {
    const found = facts(pid)
    if (found !== null && !members.has(found.parent))
      return { pid, startedTicks: found.startedTicks }
  }
  return null
}

/** And not another one that was given its number. */
export const isSame = ({ pid, startedTicks }: Process): boolean =>
  facts(pid)?.startedTicks === startedTicks

function findTree(tree: Tree, known: ReadonlySet<number>, alone: boolean): number[] {
  const marker = markerOf(tree.execId)
  const members = new Map<number, ProcessFacts>()
  for (const pid of tree.cgroup.pids()) {
    const found = facts(pid)
    if (found !== null) members.set(pid, found)
  }
  const init = initOf(members)
  const victims = new Set<number>()
  for (const [pid, { parent, startedTicks }] of members) {
    if (pid === init) continue
    const env = environment(pid)
    const orphan =
      alone &&
      startedTicks >= tree.startedTicks &&
      env?.some((entry) => entry.startsWith(`${markerName}=`)) === false &&
      (parent === init || !members.has(parent))
    if (known.has(pid) || orphan || env?.includes(marker) === true) victims.add(pid)
  }
  for (let grown = true; grown;) {
    grown = false
    for (const [pid, { parent }] of members)
      if (!victims.has(pid) && (victims.has(parent) || known.has(parent))) {
        victims.add(pid)
        grown = true
      }
  }
  return [...victims]
}

/** The oldest of those whose parent is outside the container; the others of those are first processes of execs. */
function initOf(members: ReadonlyMap<number, ProcessFacts>): number | undefined {
  const roots = [...members].filter(([, { parent }]) => !members.has(parent))
  roots.sort(([, a], [, b]) => a.startedTicks - b.startedTicks)
  return roots[0]?.[0]
}

interface ProcessFacts {
  readonly parent: number
  readonly startedTicks: number
}

/** Fields of /proc/pid/stat behind the command's name, which may hold any character. */
const field = { state: 0, parent: 1, startedTicks: 19 } as const

/** null for a process that is gone or a zombie. */
function facts(pid: number): ProcessFacts | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const state = fields[field.state]
    if (state === 'Z' || state === 'X') return null
    return {
      parent: Number(fields[field.parent]),
      startedTicks: Number(fields[field.startedTicks]),
    }
  } catch {
    return null
  }
}

function environment(pid: number): string[] | null {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0')
  } catch {
    return null
  }
}

const ticksPerSecond = 100

/** Now, in the unit of a process's start time. */
export function ticksNow(): number {
  const [uptime] = readFileSync('/proc/uptime', 'latin1').split(' ')
  return Math.floor(Number(uptime) * ticksPerSecond)
}
