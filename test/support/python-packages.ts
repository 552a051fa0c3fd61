/**
 * Python programs as they are published: each set of packages in a folder of its own under `.closedbook/peers/`,
 * installed once from the package index. Only that needs a network.
 */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { access, mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const run = promisify(execFile)
const peers = fileURLToPath(new URL('../../.closedbook/peers', import.meta.url))

/** The folder of one pinned package and what it needs, for PYTHONPATH; its name is `name-version`. */
export const pythonPackage = (name: string, version: string): Promise<string> =>
  pythonPackages(`${name}-${version}`, [`${name}==${version}`])

/** The same for what `pip install` is told, in a folder of that name. */
export async function pythonPackages(name: string, wanted: readonly string[]): Promise<string> {
  const folder = path.join(peers, name)
  const there = await access(folder).then(
    () => true,
    () => false,
  )
  if (there) return folder
  await mkdir(peers, { recursive: true })
  const fresh = await mkdtemp(path.join(peers, 'install-'))
  try {
    const pip = ['-m', 'pip', 'install', '--quiet', '--target', fresh]
    await run('python3', [...pip, ...wanted])
    await rename(fresh, folder)
  } catch (error) {
    await rm(fresh, { recursive: true, force: true })
    // Another test was faster.
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOTEMPTY')) throw error
  }
  return folder
}

/** Runs a program with those packages and nothing else of the host's; its last line is JSON. */
export async function runPython(
  packages: string,
  program: string,
  args: readonly string[],
): Promise<unknown> {
  const child = spawn('python3', ['-c', program, ...args], {
    env: {
      PATH: process.env['PATH'],
      PYTHONPATH: packages,
      PYTHONNOUSERSITE: '1',
      HOME: '/nowhere',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  const [code] = (await once(child, 'close')) as [number | null]
  try {
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '')
  } catch {
    throw new Error(`exit ${code} and no JSON:\n${stdout}\n${stderr}`)
  }
}
