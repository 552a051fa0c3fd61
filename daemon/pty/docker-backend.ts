/**
 * A session's program in a container: an exec with a terminal. Its input is always attached, for only then does the
 * engine keep telling the truth about an exec whose connection broke; the end of the program is the engine's event.
 * Signals come from the host's side, through the container's cgroup, and reach what left the terminal's session too.
 */
import type { Engine } from '../engine/engine.ts'
import { EngineError } from '../errors.ts'
import { killTree, marked, signalTree } from '../exec/kill-tree.ts'
import type { PtyBackend } from './backend.ts'
import { environmentOf, holdsTerminal, killDeadlineMs, treeOf, type PtySpec } from './program.ts'
import { wrap } from './start-wrapper.ts'

export async function openDockerPty(engine: Engine, spec: PtySpec): Promise<PtyBackend> {
  const tree = treeOf(spec)
  let taker: ((bytes: Buffer) => void) | null = null
  const early: Buffer[] = []
  const handle = await engine.exec(spec.container, {
    argv: wrap(spec.argv, { ...spec.size, mark: spec.mark }),
    env: environmentOf(spec),
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
