/**
 * A session's program in a container: an exec with a terminal. Its input is always attached, for only then does the
 * engine keep telling the truth about an exec whose connection broke; the end of the program is the engine's event.
 * Signals come from the host's side, through the container's cgroup, and reach what left the terminal's session too.
 */
import { readlinkSync } from 'node:fs'
import { Cgroup } from '../engine/cgroup.ts'
import type { Engine } from '../engine/engine.ts'
import { EngineError } from '../errors.ts'
import { killTree, marked, markerOf, signalTree, ticksNow, type Tree } from '../exec/kill-tree.ts'
import type { PtyBackend } from './backend.ts'
import type { Size } from './resizer.ts'
import { wrap } from './start-wrapper.ts'

const killDeadlineMs = 10_000

export interface DockerPtySpec {
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

export async function openDockerPty(engine: Engine, spec: DockerPtySpec): Promise<PtyBackend> {
  const startedTicks = ticksNow()
  const cgroup = spec.initPid === null ? null : Cgroup.ofPid(spec.initPid)
  const tree: Tree | null = cgroup === null ? null : { execId: spec.pty, cgroup, startedTicks }
  let taker: ((bytes: Buffer) => void) | null = null
  const early: Buffer[] = []
  const handle = await engine.exec(spec.container, {
    argv: wrap(spec.argv, { ...spec.size, mark: spec.mark }),
    env: [
      ...Object.entries({ ...terminalEnv, ...spec.env }).map(([name, value]) => `${name}=${value}`),
      markerOf(spec.pty),
    ],
    stdin: true,
    tty: true,
    take: (bytes) => {
      if (taker === null) early.push(Buffer.from(bytes))
      else taker(bytes)
    },
    ...(spec.user === undefined ? {} : { user: spec.user }),
    ...(spec.cwd === undefined ? {} : { workdir: spec.cwd }),
  })
  let over = false
  void handle.died.then((code) => (over ||= code !== null))
  const rootPid = async (): Promise<number> =>
    handle.inspect().then(
      ({ pid }) => pid,
      () => 0,
    )
  return {
    stream: handle.stream,
    died: handle.died,
    read: (take) => {
      taker = take
      for (const bytes of early.splice(0)) take(bytes)
      handle.stream.resume()
    },
    resize: ({ rows, cols }) => handle.resize(rows, cols),
    look: async () => {
      try {
        const { running, exitCode, pid } = await handle.inspect()
        if (!running) {
          over = true
          return { state: 'ended', code: exitCode, started: pid > 0 }
        }
        const alive = [pid, ...(tree === null ? [] : marked(tree))]
        return { state: 'running', holdsTerminal: alive.some(holdsTerminal) }
      } catch (error) {
        if (!(error instanceof EngineError)) throw error
        return { state: error.code === 'container_gone' ? 'container_gone' : 'engine_lost' }
      }
    },
    signal: async (name) => {
      if (tree !== null) signalTree(tree, await rootPid(), name)
    },
    kill: async ({ alone }) => {
      if (tree === null) return
      await killTree(tree, {
        rootPid: over ? 0 : await rootPid(),
        alone: () => alone,
        over: () => over || handle.stream.destroyed,
        deadlineMs: killDeadlineMs,
      })
    },
  }
}

function holdsTerminal(pid: number): boolean {
  return ['0', '1', '2'].some((fd) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${fd}`).startsWith('/dev/pts/')
    } catch {
      return false
    }
  })
}
