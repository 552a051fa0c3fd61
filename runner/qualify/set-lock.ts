/**
 * One process at a time on a set of trials. The lock itself is an abstract unix socket named after the directory: the kernel
 * takes it back when its owner dies, so there is no stale lock to break. The file in it says who holds it,
 * for people, and guards against an owner in another network namespace of this host.
 */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readFile, realpath, rm } from 'node:fs/promises'
import { createServer, type Server } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { RunnerError, systemCode } from '../errors.ts'
import { writeJsonAtomic } from '../json-file.ts'

const holderSchema = z.object({
  pid: z.int().positive(),
  bootId: z.string(),
  /** In clock ticks after boot, so that a reused pid is not taken for the holder. */
  startTime: z.string(),
  host: z.string(),
})
export type LockHolder = z.infer<typeof holderSchema>

export class SetLock implements AsyncDisposable {
  readonly #server: Server
  readonly #file: string
  /** The dead owner that this lock was taken over from. */
  readonly takenOverFrom: LockHolder | null

  private constructor(server: Server, file: string, takenOverFrom: LockHolder | null) {
    this.#server = server
    this.#file = file
    this.takenOverFrom = takenOverFrom
  }

  static async acquire(dir: string): Promise<SetLock> {
    const file = join(dir, 'lock')
    const server = await listen(await realpath(dir))
    if (server === null) throw locked(dir, await readHolder(file))
    try {
      const before = await readHolder(file)
      if (before !== null && (await isAlive(before))) throw locked(dir, before)
      await writeJsonAtomic(file, await self())
      return new SetLock(server, file, before)
    } catch (error) {
      server.close()
      throw error
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#server.listening) return
    await rm(this.#file, { force: true })
    const closed = once(this.#server, 'close')
    this.#server.close()
    await closed
  }
}

async function listen(dir: string): Promise<Server | null> {
  const server = createServer((socket) => socket.destroy())
  server.unref()
  const name = createHash('sha256').update(dir).digest('hex').slice(0, 40)
  server.listen({ path: `\0closedbook-set-${name}` })
  try {
    await once(server, 'listening')
    return server
  } catch (error) {
    if (systemCode(error) === 'EADDRINUSE') return null
    throw error
  }
}

async function readHolder(file: string): Promise<LockHolder | null> {
  const text = await readFile(file, 'utf8').catch(() => null)
  if (text === null) return null
  try {
    return holderSchema.parse(JSON.parse(text))
  } catch {
    return null
  }
}

/** Another host's process can't be looked at: it counts as alive until a person removes the lock. */
async function isAlive(holder: LockHolder): Promise<boolean> {
  if (holder.host !== hostname()) return true
  if (holder.bootId !== (await bootId())) return false
  return (await startTimeOf(holder.pid)) === holder.startTime && holder.pid !== process.pid
}

const bootId = async (): Promise<string> =>
  (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim()

/** Field 22 of /proc/PID/stat, counted after the command, which may hold spaces and brackets. */
async function startTimeOf(pid: number): Promise<string | null> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => null)
  if (stat === null) return null
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields[0] === 'Z' ? null : (fields[19] ?? null)
}

const self = async (): Promise<LockHolder> => ({
  pid: process.pid,
  bootId: await bootId(),
  startTime: (await startTimeOf(process.pid)) ?? '',
  host: hostname(),
})

function locked(dir: string, holder: LockHolder | null): RunnerError {
  const who = holder === null ? 'another process' : `process ${holder.pid} on ${holder.host}`
  const elsewhere = holder !== null && holder.host !== hostname()
  const fix = elsewhere
    ? `if that host is gone, remove ${join(dir, 'lock')}`
    : 'wait for it, or stop it'
  return new RunnerError('job_locked', 'operator', `${dir} is being written by ${who}; ${fix}`, {
    facts: { dir, pid: holder?.pid ?? null, host: holder?.host ?? null },
  })
}
