/**
 * A session's program by the engine's command line: `docker exec -it` on a terminal of the host's. Its status is the
 * program's, unless the command ended before the program did, which the container's cgroup tells; then nobody knows the
 * status, and so it is said. Signals come from the host's side as in the other backend.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { isLive } from '../engine/cgroup.ts'
import { EngineError } from '../errors.ts'
import { isSame, killTree, marked, rootOf, signalTree, type Process } from '../exec/kill-tree.ts'
import type { PtyBackend } from './backend.ts'
import { HostTerminal } from './host-terminal.ts'
import { environmentOf, holdsTerminal, killDeadlineMs, treeOf, type PtySpec } from './program.ts'
import { wrap } from './start-wrapper.ts'

/** Three keys that nobody types: with none of its own the command would take ^P. */
const detachKeys = 'ctrl-^,ctrl-^,ctrl-^'
const lookMs = 50
/** Values are named to the command and found in its environment, for arguments are everybody's to read; but for these, which it would follow itself. */
const itsOwn =
  /^(PATH|HOME|PWD|IFS|ENV|PS[14]|TERM|LANG|LC_.*|DOCKER_.*|LD_.*|GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK)|OTEL_.*|.*_PROXY)$/i

export function openCliPty(command: readonly string[], spec: PtySpec): Promise<PtyBackend> {
  const tree = treeOf(spec)
  const named = environmentOf(spec).map((entry) => {
    const [name = ''] = entry.split('=', 1)
    return { name, value: entry.slice(name.length + 1), own: itsOwn.test(name) }
  })
  const argv = [
    ...command,
    ...['exec', '-i', '-t', `--detach-keys=${detachKeys}`],
    ...named.flatMap(({ name, value, own }) => ['-e', own ? `${name}=${value}` : name]),
    ...(spec.user === undefined ? [] : ['-u', spec.user]),
    ...(spec.cwd === undefined ? [] : ['-w', spec.cwd]),
    spec.container,
    ...wrap(spec.argv, { ...spec.size, mark: spec.mark }),
  ]
  const env = {
    ...Object.fromEntries(named.filter(({ own }) => !own).map(({ name, value }) => [name, value])),
    PATH: process.env['PATH'] ?? '/usr/bin:/bin',
    HOME: process.env['HOME'] ?? '/nonexistent',
    ...{ TERM: 'xterm-256color', DOCKER_CLI_HINTS: 'false' },
  }
  let terminal: HostTerminal
  try {
    terminal = HostTerminal.open(argv, { size: spec.size, env })
  } catch (cause) {
    throw new EngineError('engine_refused', 'infra', `no terminal: ${String(cause)}`, { cause })
  }
  return Promise.resolve(backendOf(terminal, tree, spec.initPid))
}

function backendOf(
  stream: HostTerminal,
  tree: ReturnType<typeof treeOf>,
  initPid: number | null,
): PtyBackend {
  let root: Process | null = null
  let status: number | null = null
  let over = false
  const findRoot = (): Process | null => (root ??= tree === null ? null : rootOf(tree))
  const runs = (): boolean => root !== null && isSame(root)
  const containerGone = (): boolean => initPid !== null && !isLive(initPid)
  // The first bytes come when the program is about to begin: its process is there, and its marker not yet hidden.
  void stream.begun.then(findRoot)
  const died = stream.over.then(async (told) => {
    over = true
    // The command is over and its program is not: what that ends with, nobody is told.
    if (runs()) while (runs()) await delay(lookMs, undefined, { ref: false })
    else if (!containerGone()) status = told
    return status
  })
  stream.pause()
  return {
    stream,
    died,
    read: (take) => {
      stream.on('data', take)
      stream.resume()
    },
    resize: (size) => Promise.resolve(stream.resize(size)),
    look: () => {
      if (containerGone()) return Promise.resolve({ state: 'container_gone' })
      if (!runs()) return Promise.resolve({ state: 'ended', code: status, started: false })
      const alive = [root?.pid ?? 0, ...(tree === null ? [] : marked(tree))]
      return Promise.resolve({ state: 'running', holdsTerminal: alive.some(holdsTerminal) })
    },
    signal: (name) => {
      if (tree !== null) signalTree(tree, findRoot()?.pid ?? 0, name)
      return Promise.resolve()
    },
    kill: async ({ alone }) => {
      if (tree === null) return
      await killTree(tree, {
        rootPid: runs() ? (root?.pid ?? 0) : 0,
        alone: () => alone,
        over: () => over,
        deadlineMs: killDeadlineMs,
      })
    },
  }
}
