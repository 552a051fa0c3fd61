/**
 * Whether a container may still open the GPUs that it was given. The nodes are looked at once, before anything of the
 * agent's has run; from then on a process of ours enters the container's cgroup and opens nodes of its own with the
 * same numbers. So a revoked device (a reload of the host's systemd does it) is seen, and what the agent does to /dev
 * inside is not taken for it.
 */
import { execFile } from 'node:child_process'
import { lstat, mkdtemp, readdir, rm } from 'node:fs/promises'
import path from 'node:path'

export interface Accessor {
  readonly busyboxPath: string
  /** A directory on a file system that allows device nodes. */
  readonly directory: string
  readonly timeoutMs: number
}

/** `major:minor` of every GPU node that the container of that PID 1 has. */
export async function gpuNodes(pid: number): Promise<string[]> {
  const directory = `/proc/${pid}/root/dev`
  const names = (await readdir(directory)).filter((name) => /^nvidia\d+$/.test(name))
  const stats = await Promise.all(names.toSorted().map((name) => lstat(path.join(directory, name))))
  return stats.filter((stat) => stat.isCharacterDevice()).map(({ rdev }) => numbers(rdev))
}

/** As the C library packs them. */
const numbers = (rdev: number): string =>
  `${Math.floor(rdev / 256) % 4096}:${(rdev % 256) + Math.floor(rdev / 1_048_576) * 256}`

const script = `
cd "$1" && procs=$2 || exit 1
shift 2
for node in "$@"; do mknod "$node" c "\${node%:*}" "\${node#*:}" || exit 1; done
echo $$ >"$procs" || exit 1
for node in "$@"; do (: <"$node") || exit 1; done
`

/** null when all can be opened, else why not. `procs`: the file by which a process enters the container's cgroup. */
export async function tryOpen(
  nodes: readonly string[],
  procs: string,
  { busyboxPath, directory, timeoutMs }: Accessor,
): Promise<string | null> {
  const scratch = await mkdtemp(path.join(directory, 'nodes-'))
  try {
    return await new Promise<string | null>((resolve) => {
      const timer = setTimeout(() => {
        child.kill('SIGKILL')
        resolve(`opening it did not end within ${timeoutMs / 1000} s`)
      }, timeoutMs)
      const child = execFile(
        busyboxPath,
        ['sh', '-c', script, 'sh', scratch, procs, ...new Set(nodes)],
        (error, _stdout, stderr) => {
          clearTimeout(timer)
          const said =
            stderr
              .trim()
              .split('\n')
              .at(-1)
              ?.replace(/^.*line \d+: /, '') ?? ''
          resolve(error === null ? null : said === '' ? error.message : said)
        },
      )
    })
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}
