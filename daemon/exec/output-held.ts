/**
 * Tells a command that closed its output itself from one whose output goes on into a connection that we lost: both look
 * like the end of the stream. The engine's shim, which is the parent of an exec's first process, holds the other ends
 * of the pipes that the command writes to; so it is asked whether such a pipe is still open on the command's side.
 */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { marked } from './kill-tree.ts'
import type { Tree } from './kill-tree.ts'

const outputs = ['1', '2']

/** `rootPid`: host pid of the exec's first process, which is alive. */
export function holdsOutput(tree: Tree, rootPid: number): boolean {
  const engineEnds = new Set(pipesOf(parentOf(rootPid)))
  if (engineEnds.size === 0) return false
  return [rootPid, ...marked(tree)].some((pid) =>
    pipesOf(pid, outputs).some((pipe) => engineEnds.has(pipe)),
  )
}

function parentOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
  } catch {
    return 0
  }
}

function pipesOf(pid: number, only?: readonly string[]): string[] {
  try {
    return (only ?? readdirSync(`/proc/${pid}/fd`))
      .map((fd) => linkOf(`/proc/${pid}/fd/${fd}`))
      .filter((target) => target.startsWith('pipe:'))
  } catch {
    return []
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}
