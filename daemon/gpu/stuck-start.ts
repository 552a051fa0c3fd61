/**
 * Ends a start that hangs in the GPU hook. The engine holds the container's lock for as long as its runtime runs the
 * hook, so that not even a removal gets through; ending the runtime of this one container lets both come back.
 */
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'

/** Ends the runtime that creates that container, and what it runs; returns how many processes. */
export async function endStuckStart(container: string): Promise<number> {
  const processes = await list()
  const starting = processes.filter(
    ({ argv }) => path.basename(argv[0] ?? '') === 'runc' && argv.includes(container),
  )
  const doomed = new Set(starting.map(({ pid }) => pid))
  for (let before = -1; before !== doomed.size;) {
    before = doomed.size
    for (const { pid, parent } of processes) if (doomed.has(parent)) doomed.add(pid)
  }
  for (const pid of doomed)
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // ended by itself
    }
  return doomed.size
}

interface Process {
  readonly pid: number
  readonly parent: number
  readonly argv: readonly string[]
}

async function list(): Promise<Process[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  const found = await Promise.all(
    pids.map(async (pid): Promise<Process | null> => {
      try {
        const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
        const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
        const argv = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0')
        return { pid, parent, argv }
      } catch {
        return null
      }
    }),
  )
  return found.filter((each) => each !== null)
}
