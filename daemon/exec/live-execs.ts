/** Which execs are live in which container: killing one's tree may guess about orphans only while it is the only one. */
const live = new Map<string, Set<string>>()

export function enterExec(containerId: string, execId: string): Disposable {
  const execs = live.get(containerId) ?? new Set()
  live.set(containerId, execs.add(execId))
  return {
    [Symbol.dispose]: () => {
      execs.delete(execId)
      if (execs.size === 0 && live.get(containerId) === execs) live.delete(containerId)
    },
  }
}

export function isAlone(containerId: string, execId: string): boolean {
  const execs = live.get(containerId)
  return execs === undefined || (execs.size === 1 && execs.has(execId))
}
