/**
 * A job's files from the store, for a host that lacks them: each pack lies once under the state directory, by its
 * digest, and is whole or not there.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { RunnerError } from '../errors.ts'
import { makeDirectory } from '../json-file.ts'
import { packedName } from '../job/pack.ts'
import type { Plan } from '../job/plan.ts'
import type { Sources } from '../job/sources.ts'
import { readPack, type PackNames } from '../store/packs.ts'
import type { Store } from '../store/store.ts'

/** The sources of the job with every path on this host; throws where something was not carried. */
export async function unpackSources(
  store: Store,
  job: { readonly plan: Plan; readonly sources: Sources; readonly packs: PackNames },
  stateDir: string,
): Promise<Sources> {
  const { plan, sources, packs } = job
  const place = async (name: string | null): Promise<string> => {
    if (name === null)
      throw new RunnerError(
        'plan_changed',
        'operator',
        `job ${plan.job} was too big to carry; bring its tasks and configurations to the paths where it was planned`,
      )
    return unpack(store, name, path.join(stateDir, 'packs'))
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

async function unpack(store: Store, name: string, packs: string): Promise<string> {
  const directory = path.join(packs, name.replace(':', '-'))
  if (existsSync(directory)) return directory
  await makeDirectory(packs, 0o700)
  const temporary = await mkdtemp(`${directory}.`)
  try {
    const argv = ['-xz', '--no-same-owner', '--no-same-permissions', '-C', temporary]
    const tar = spawn('tar', argv, { stdio: ['pipe', 'ignore', 'pipe'] })
    let said = ''
    tar.stderr.on('data', (chunk: Buffer) => (said += chunk.toString().slice(0, 1000)))
    tar.stdin.on('error', () => {})
    tar.stdin.end(await readPack(store, name))
    const [code] = (await once(tar, 'close')) as [number | null]
    if (code !== 0) throw new Error(`tar could not unpack ${name}: ${said.trim()}`)
    await rename(temporary, directory).catch((error: unknown) => {
      // Another worker of this host was first.
      if (!existsSync(directory)) throw error
    })
    return directory
  } finally {
    await rm(temporary, { recursive: true, force: true })
  }
}
