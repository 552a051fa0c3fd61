/**
 * The control group of a container, read and acted on from the host: who is in it, what hit its limits, and how to end
 * everybody but PID 1. Works on cgroup v1 and v2; what only one of them can tell is null on the other.
 * Pids are host pids. A zombie counts as gone: it runs nothing, and its parent's death hands it to the init.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, posix } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { LeaseError } from '../errors.ts'

export interface CgroupStats {
  readonly oomKills: number
  readonly pidsLimitHits: number
  readonly memoryPeakBytes: number | null
  readonly cpuMs: number | null
}

export interface KillReport {
  /** Distinct processes that got the signal. */
  readonly killed: number
  readonly rounds: number
  /** Twice in a row nobody but PID 1 was left. */
  readonly empty: boolean
}

type Controller = 'pids' | 'freezer' | 'memory' | 'cpuacct' | 'devices'
const controllers: readonly Controller[] = ['pids', 'freezer', 'memory', 'cpuacct', 'devices']

const pollMs = 2
const freezeDeadlineMs = 2_000

export class Cgroup {
  readonly version: 1 | 2
  /** Directories by controller; one and the same on v2. */
  readonly #paths: Readonly<Record<Controller, string | null>>

  private constructor(version: 1 | 2, paths: Readonly<Record<Controller, string | null>>) {
    this.version = version
    this.#paths = paths
  }

  /** Throws `freeze_failed` when the host shows no cgroup of that process, or only the host's own root. */
  static ofPid(pid: number): Cgroup {
    const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').trim().split('\n')
    const mounts = cgroupMounts()
    const v1 = (controller: Controller): string | null => {
      const mount = mounts.find(({ kind, options }) => kind === 'cgroup' && options.has(controller))
      const line = lines.find((each) => each.split(':')[1]?.split(',').includes(controller))
      return mount === undefined || line === undefined ? null : within(mount, pathOf(line))
    }
    if (v1('pids') !== null) {
      const paths = Object.fromEntries(controllers.map((name) => [name, v1(name)]))
      return new Cgroup(1, paths as Record<Controller, string | null>)
    }
    const mount = mounts.find(({ kind }) => kind === 'cgroup2')
    const line = lines.find((each) => each.startsWith('0::'))
    const path = mount === undefined || line === undefined ? null : within(mount, pathOf(line))
    if (path === null)
      throw new LeaseError(
        'freeze_failed',
        'infra',
        `The cgroup of process ${pid} can't be found. Mount cgroup v1 or v2 at /sys/fs/cgroup.`,
      )
    return new Cgroup(2, {
      pids: path,
      freezer: path,
      memory: path,
      cpuacct: path,
      devices: path,
    })
  }

  /** Everybody in the group and in groups below it; empty when the group is gone. */
  pids(): number[] {
    const path = this.#paths.pids
    return path === null ? [] : pidsUnder(path)
  }

  /** The file to which a process writes its pid to come under the group's rules for devices. */
  get devicesProcs(): string | null {
    return this.#paths.devices === null ? null : join(this.#paths.devices, 'cgroup.procs')
  }

  /** Returns true when every process has stopped, false when some did not stop in time. */
  async freeze(): Promise<boolean> {
    return this.#setFrozen(true)
  }

  async thaw(): Promise<boolean> {
    return this.#setFrozen(false)
  }

  stats(): CgroupStats {
    const { pids, memory, cpuacct } = this.#paths
    const v1 = this.version === 1
    const cpu = v1
      ? scale(number(read(cpuacct, 'cpuacct.usage')), 1e-6)
      : scale(field(read(cpuacct, 'cpu.stat'), 'usage_usec'), 1e-3)
    return {
      oomKills: field(read(memory, v1 ? 'memory.oom_control' : 'memory.events'), 'oom_kill') ?? 0,
      pidsLimitHits: field(read(pids, 'pids.events'), 'max') ?? 0,
      memoryPeakBytes: number(read(memory, v1 ? 'memory.max_usage_in_bytes' : 'memory.peak')),
      cpuMs: cpu === null ? null : Math.round(cpu),
    }
  }

  /**
   * Ends every process but `initPid`: stop all, signal all, let go, until twice nobody is left. Stopped processes
   * can't fork, so no storm outruns it. Never throws for what the sandbox does; look at `empty`.
   */
  async killAllBut(
    initPid: number,
    options: { signal?: AbortSignal; deadlineMs: number },
  ): Promise<KillReport> {
    const killed = new Set<number>()
    const deadline = performance.now() + options.deadlineMs
    let rounds = 0
    let emptyRounds = 0
    while (emptyRounds < 2 && performance.now() < deadline) {
      options.signal?.throwIfAborted()
      if (this.#others(initPid).length === 0) {
        emptyRounds += 1
        await delay(pollMs)
        continue
      }
      emptyRounds = 0
      rounds += 1
      await this.freeze()
      let victims: number[]
      try {
        victims = this.#others(initPid)
        for (const pid of victims) if (kill(pid)) killed.add(pid)
      } finally {
        await this.thaw()
      }
      const roundEnd = Math.min(deadline, performance.now() + 1_000)
      while (performance.now() < roundEnd && victims.some(isLive)) await delay(pollMs)
    }
    return { killed: killed.size, rounds, empty: emptyRounds >= 2 }
  }

  #others(initPid: number): number[] {
    return this.pids().filter((pid) => pid !== initPid && isLive(pid))
  }

  async #setFrozen(frozen: boolean): Promise<boolean> {
    const path = this.#paths.freezer
    if (path === null) return false
    const v1 = this.version === 1
    const deadline = performance.now() + freezeDeadlineMs
    const word = v1 ? (frozen ? 'FROZEN' : 'THAWED') : frozen ? '1' : '0'
    while (performance.now() < deadline) {
      // Written again each time: v1 gives up on a group that forks while it is being frozen.
      if (!write(path, v1 ? 'freezer.state' : 'cgroup.freeze', word)) return false
      const state = v1
        ? read(path, 'freezer.state').trim() === word
        : field(read(path, 'cgroup.events'), 'frozen') === (frozen ? 1 : 0)
      if (state) return true
      await delay(pollMs)
    }
    return false
  }
}

interface Mount {
  readonly kind: string
  readonly root: string
  readonly point: string
  readonly options: ReadonlySet<string>
}

/** Fields 4 and 5 of a mountinfo line are root and mount point; behind ` - `: kind, source, options. */
function cgroupMounts(): Mount[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .flatMap((line) => {
      const [before, after] = line.split(' - ')
      const [, , , root, point] = before?.split(' ') ?? []
      const [kind, , options] = after?.split(' ') ?? []
      return kind?.startsWith('cgroup') === true && root !== undefined && point !== undefined
        ? [{ kind, root, point, options: new Set(options?.split(',')) }]
        : []
    })
}

function pathOf(line: string): string {
  return line.split(':').slice(2).join(':')
}

/** null for the root group: acting on it would act on the host. */
function within(mount: Mount, path: string): string | null {
  const relative = posix.relative(mount.root, path)
  return relative === '' || relative.startsWith('..') ? null : join(mount.point, relative)
}

function pidsUnder(path: string): number[] {
  const own = read(path, 'cgroup.procs')
    .split('\n')
    .filter((line) => line !== '')
    .map(Number)
  return [...own, ...directories(path).flatMap((name) => pidsUnder(join(path, name)))]
}

function directories(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name)
  } catch {
    return []
  }
}

/** '' where the file or the group is gone. */
function read(path: string | null, name: string): string {
  if (path === null) return ''
  try {
    return readFileSync(join(path, name), 'utf8')
  } catch {
    return ''
  }
}

function write(path: string, name: string, value: string): boolean {
  try {
    writeFileSync(join(path, name), value)
    return true
  } catch {
    return false
  }
}

/** The number behind `name` in a file of `name number` lines. */
function field(text: string, name: string): number | null {
  const line = text.split('\n').find((each) => each.startsWith(`${name} `))
  return line === undefined ? null : number(line.slice(name.length))
}

function number(text: string): number | null {
  const value = Number.parseInt(text, 10)
  return Number.isNaN(value) ? null : value
}

function scale(value: number | null, by: number): number | null {
  return value === null ? null : value * by
}

/** False for a process that is gone or a zombie. */
export function isLive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const state = stat.charAt(stat.lastIndexOf(')') + 2)
    return state !== 'Z' && state !== 'X'
  } catch {
    return false
  }
}

/** SIGKILL; false when the process is already gone. */
export function kill(pid: number): boolean {
  try {
    process.kill(pid, 'SIGKILL')
    return true
  } catch {
    return false
  }
}
