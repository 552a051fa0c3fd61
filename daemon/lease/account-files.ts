/**
 * Engines look names up in the container's own /etc/passwd and /etc/group when they make an archive of it (20.10 opens
 * them, whatever they are). A pipe that an agent put there would hold the engine, and with it the container, for ever;
 * a file without end would keep it reading. So what is no plain file of a sensible size is set aside when the sandbox
 * has been frozen. No link is followed: one that an agent made could lead out of the sandbox.
 */
import type { Stats } from 'node:fs'
import { lstat, rename } from 'node:fs/promises'
import path from 'node:path'

const maxBytes = 1024 * 1024

/** Only for a frozen sandbox: nothing may change the files meanwhile. */
export async function settleAccountFiles(pid: number): Promise<void> {
  const directory = `/proc/${pid}/root/etc`
  const found = await facts(directory)
  if (found === null) return
  if (!found.isDirectory()) return setAside(directory)
  for (const name of ['passwd', 'group']) {
    const file = path.join(directory, name)
    const seen = await facts(file)
    if (seen !== null && !(seen.isFile() && seen.size <= maxBytes)) await setAside(file)
  }
}

const facts = (file: string): Promise<Stats | null> => lstat(file).catch(() => null)

const setAside = (file: string): Promise<void> => rename(file, `${file}.set-aside-${Date.now()}`)
