/** Which process a worker is, so that others on its host can tell that it died before its heartbeat is missed. */
import { readFile, readlink } from 'node:fs/promises'
import { hostname } from 'node:os'
import { isAlive, recordOf } from '../host/process-record.ts'

export interface ProcessIdentity {
  readonly host: string
  /** Boot of the kernel, and which view of processes `pid` is in. */
  readonly boot: string
  readonly pid: number
  readonly startTime: string
}

let own: Promise<ProcessIdentity> | undefined

export const thisProcess = (): Promise<ProcessIdentity> => (own ??= look())

async function look(): Promise<ProcessIdentity> {
  const [boot, view, record] = await Promise.all([
    readFile('/proc/sys/kernel/random/boot_id', 'utf8'),
    readlink('/proc/self/ns/pid').catch(() => ''),
    recordOf(process.pid),
  ])
  return {
    host: hostname(),
    boot: `${boot.trim()} ${view}`,
    pid: process.pid,
    startTime: record?.startTime ?? '',
  }
}

/** null: another host's or another view's, which can't be looked at from here. */
export async function isDead(other: ProcessIdentity): Promise<boolean | null> {
  const self = await thisProcess()
  if (other.boot === self.boot) return !(await isAlive(other))
  const [otherBoot] = other.boot.split(' ')
  return other.host === self.host && otherBoot !== self.boot.split(' ')[0] ? true : null
}
