/**
 * The static programs that every sandbox gets read-only: catatonit, its PID 1, and busybox, for canaries. The host's own
 * are used where they are static; else Debian's packages are downloaded and unpacked under the state directory, with
 * nothing installed on the host.
 */
import { execFile } from 'node:child_process'
import { copyFile, chmod, mkdir, mkdtemp, open, readdir, rename, rm } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { HostError } from '../daemon/errors.ts'

const run = promisify(execFile)
const downloadDeadlineMs = 120_000

export interface Tools {
  readonly initPath: string
  readonly busyboxPath: string
}

interface Tool {
  readonly program: string
  readonly package: string
  readonly places: readonly string[]
}

const catatonit: Tool = {
  program: 'catatonit',
  package: 'catatonit',
  places: ['/usr/bin', '/usr/local/bin', '/usr/libexec/podman', '/usr/libexec/catatonit'],
}
const busybox: Tool = {
  program: 'busybox',
  package: 'busybox-static',
  places: ['/bin', '/usr/bin', '/usr/local/bin'],
}

export interface ToolOptions {
  /** Where to look before downloading; by default PATH and the usual places. */
  readonly places?: readonly string[]
  readonly signal?: AbortSignal | undefined
}

/** Paths of both programs; throws HostError `tool_missing` with what to do when one can't be had. */
export async function ensureTools(stateDir: string, options: ToolOptions = {}): Promise<Tools> {
  const folder = join(stateDir, 'tools')
  const initPath = await ensure(catatonit, folder, options)
  return { initPath, busyboxPath: await ensure(busybox, folder, options) }
}

async function ensure(tool: Tool, folder: string, options: ToolOptions): Promise<string> {
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((place) => place.startsWith('/'))
  for (const place of [folder, ...(options.places ?? [...tool.places, ...path])]) {
    const file = join(place, tool.program)
    if (await isStaticElf(file)) return file
  }
  try {
    return await download(tool, folder, options.signal)
  } catch (error) {
    options.signal?.throwIfAborted()
    throw new HostError(
      'tool_missing',
      'operator',
      `A static ${tool.program} is needed and could not be downloaded. Install it (apt-get install ${tool.package}), or put a static binary at ${join(folder, tool.program)}.`,
      { cause: error },
    )
  }
}

async function download(
  tool: Tool,
  folder: string,
  signal: AbortSignal | undefined,
): Promise<string> {
  await mkdir(folder, { recursive: true })
  const scratch = await mkdtemp(join(folder, '.download-'))
  try {
    // apt drops to a user of its own for downloads.
    await chmod(scratch, 0o777)
    const settings = { cwd: scratch, timeout: downloadDeadlineMs, ...(signal && { signal }) }
    try {
      await run('apt-get', ['download', '-q', tool.package], settings)
    } catch {
      signal?.throwIfAborted()
      // A fresh machine has no package lists: fetch them to a place of ours.
      const own = [
        `Dir::State::Lists=${join(scratch, 'lists')}`,
        `Dir::Cache=${join(scratch, 'cache')}`,
      ]
      const lists = own.flatMap((setting) => ['-o', setting])
      await mkdir(join(scratch, 'lists/partial'), { recursive: true })
      await mkdir(join(scratch, 'cache/archives/partial'), { recursive: true })
      await run('apt-get', [...lists, 'update', '-q'], settings)
      await run('apt-get', [...lists, 'download', '-q', tool.package], settings)
    }
    const archive = (await readdir(scratch)).find((name) => name.endsWith('.deb'))
    if (archive === undefined) throw new Error(`apt-get download ${tool.package} left no package`)
    await run('dpkg', ['-x', archive, 'root'], settings)
    for (const place of ['usr/bin', 'bin']) {
      const file = join(scratch, 'root', place, tool.program)
      if (!(await isStaticElf(file))) continue
      const ready = join(scratch, tool.program)
      await copyFile(file, ready)
      await chmod(ready, 0o755)
      await rename(ready, join(folder, tool.program))
      return join(folder, tool.program)
    }
    throw new Error(`the package ${tool.package} holds no static ${tool.program}`)
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

/** True for a 64-bit ELF program without an interpreter: it runs in any image, even an empty one. */
export async function isStaticElf(file: string): Promise<boolean> {
  const interpreter = 3
  try {
    await using handle = await open(file)
    const head = Buffer.alloc(64)
    await handle.read(head, 0, 64, 0)
    const little64 = head.readUInt8(4) === 2 && head.readUInt8(5) === 1
    if (head.toString('latin1', 0, 4) !== '\x7fELF' || !little64) return false
    const [start, size, count] = [
      head.readBigUInt64LE(32),
      head.readUInt16LE(54),
      head.readUInt16LE(56),
    ]
    const table = Buffer.alloc(size * count)
    const { bytesRead } = await handle.read(table, 0, table.length, Number(start))
    if (count === 0 || bytesRead < table.length) return false
    for (let at = 0; at < table.length; at += size)
      if (table.readUInt32LE(at) === interpreter) return false
    return true
  } catch {
    return false
  }
}
