/** What is on disk of sessions, also of those whose host is gone: records and recordings, by lease. */
import { createReadStream } from 'node:fs'
import { open, readdir, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import { ptyViewSchema, type PtyView } from '../protocol/pty.ts'

export async function readViews(directory: string, lease: string): Promise<PtyView[]> {
  const names = await readdir(path.join(directory, lease)).catch(() => [])
  const views = await Promise.all(
    names
      .filter((name) => name.endsWith('.json'))
      .map(async (name) => {
        const text = await readFile(path.join(directory, lease, name), 'utf8').catch(() => '')
        return viewIn(text)
      }),
  )
  return views
    .filter((view) => view !== null)
    .toSorted((a, b) => a.startedAt.localeCompare(b.startedAt))
}

function viewIn(text: string): PtyView | null {
  try {
    return ptyViewSchema.parse(JSON.parse(text))
  } catch {
    return null
  }
}

export const castFile = (directory: string, lease: string, pty: string): string =>
  path.join(directory, lease, `${pty}.cast`)

export async function openCast(file: string): Promise<Readable | null> {
  const handle = await open(file).catch(() => null)
  return handle === null ? null : createReadStream('', { fd: handle })
}

/** After a crash of its writer: a torn last line goes, and a mark says what happened. */
export async function mendCast(file: string, mark: (seconds: number) => string): Promise<void> {
  const handle = await open(file, 'r+').catch(() => null)
  if (handle === null) return
  try {
    const { size } = await handle.stat()
    const tailBytes = Math.min(size, 1024 * 1024)
    const tail = Buffer.alloc(tailBytes)
    await handle.read(tail, 0, tailBytes, size - tailBytes)
    const whole = tail.lastIndexOf(0x0a) + 1
    await handle.truncate(size - tailBytes + whole)
    const lastLine = tail.toString('utf8', 0, whole).trimEnd().split('\n').at(-1) ?? ''
    const seconds = Number(/^\[([\d.]+),/.exec(lastLine)?.[1] ?? 0)
    await handle.write(mark(seconds), size - tailBytes + whole)
  } finally {
    await handle.close()
  }
}

export async function removeLease(directory: string, lease: string): Promise<void> {
  await rm(path.join(directory, lease), { recursive: true, force: true })
}
