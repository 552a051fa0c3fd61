/**
 * A job's files from the store, for a host that lacks them. Each worker has a folder of its own for them under the state
 * directory, named after its process: it goes with the worker, and one that was killed leaves it to the next, which
 * removes what belongs to processes that are dead, and nothing else. A pack is there whole or not at all.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { RunnerError } from '../errors.ts'
import { makeDirectory } from '../json-file.ts'
import { packedName } from '../job/pack.ts'
import type { Plan } from '../job/plan.ts'
import type { Sources } from '../job/sources.ts'
import { readPack, type PackNames } from '../store/packs.ts'
import { isDead, thisProcess, type ProcessIdentity } from '../store/process.ts'
import type { Store } from '../store/store.ts'

const packsIn = (stateDir: string): string => path.join(stateDir, 'packs')

/** What workers of this host unpacked that are dead; others share the state directory. Returns how many. */
export async function sweepUnpacked(stateDir: string): Promise<number> {
  let swept = 0
  for (const name of await readdir(packsIn(stateDir)).catch((): string[] => [])) {
    const owner = ownerOf(name)
    if (owner === null || (await isDead(owner)) !== true) continue
    await rm(path.join(packsIn(stateDir), name), { recursive: true, force: true })
    swept += 1
  }
  return swept
}

export const removeUnpacked = async (stateDir: string): Promise<void> =>
  rm(await ownFolder(stateDir), { recursive: true, force: true })

async function ownFolder(stateDir: string): Promise<string> {
  const { pid, startTime, boot, host } = await thisProcess()
  const parts = [String(pid), startTime, boot, host].map(encodeURIComponent)
  return path.join(packsIn(stateDir), parts.join('~'))
}

function ownerOf(name: string): ProcessIdentity | null {
  const [pid = '', startTime = '', boot, host] = name.split('~').map(decoded)
  if (!/^\d+$/.test(pid) || !/^\d+$/.test(startTime) || boot === undefined || host === undefined)
    return null
  return { pid: Number(pid), startTime, boot, host }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return ''
  }
}

/** The sources of the job with every path on this host; throws where something was not carried. */
export async function unpackSources(
  store: Store,
  job: { readonly plan: Plan; readonly sources: Sources; readonly packs: PackNames },
  stateDir: string,
): Promise<Sources> {
  const { plan, sources, packs } = job
  const folder = await ownFolder(stateDir)
  const place = async (name: string | null): Promise<string> => {
    if (name === null)
      throw new RunnerError(
        'plan_changed',
        'operator',
        `job ${plan.job} was too big to carry; bring its tasks and configurations to the paths where it was planned`,
      )
    return unpack(store, name, folder)
  }
  const taskDirs: string[] = []
  for (const name of packs.tasks) taskDirs.push(await place(name))
  const configurations = await place(packs.configurations)
  return {
    ...sources,
    taskDirs,
    configurations: plan.configurations.map(({ name }) => ({
      kind: 'file' as const,
      path: path.join(configurations, packedName(name)),
      harness: null,
    })),
  }
}

async function unpack(store: Store, name: string, folder: string): Promise<string> {
  const directory = path.join(folder, name.replace(':', '-'))
  if (existsSync(directory)) return directory
  const bytes = await readPack(store, name)
  await makeDirectory(folder, 0o700)
  const temporary = await mkdtemp(`${directory}.`)
  try {
    const argv = ['-xz', '--no-same-owner', '--no-same-permissions', '-C', temporary]
    const tar = spawn('tar', argv, { stdio: ['pipe', 'ignore', 'pipe'] })
    let said = ''
    tar.stderr.on('data', (chunk: Buffer) => (said += chunk.toString().slice(0, 1000)))
    tar.stdin.on('error', () => {})
    tar.stdin.end(bytes)
    const [code] = (await once(tar, 'close')) as [number | null]
    if (code !== 0) throw new Error(`tar could not unpack ${name}: ${said.trim()}`)
    await rename(temporary, directory)
    return directory
  } finally {
    await rm(temporary, { recursive: true, force: true })
  }
}
