/**
 * How this engine gives a GPU to a container, and whether it may. Old engines run NVIDIA's hook; engines from 25 on can
 * use device specs (CDI) where they name the GPUs by UUID. A toolkit before 1.17.8 lets a crafted image out of its
 * container, and our images are built by others: with such a one, or one that doesn't tell its version, none is lent.
 */
import { execFile } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import type { EngineInfo } from '../engine/engine.ts'
import type { GpuReport } from '../protocol/gpu.ts'

export type Support = Pick<GpuReport, 'mode' | 'toolkit' | 'refusal'>

export interface ToolkitConfig {
  readonly mode: 'auto' | 'nvidia' | 'cdi'
  readonly hook?: string | undefined
  readonly requireToolkit: boolean
}

const run = promisify(execFile)
const versionTimeoutMs = 10_000
const firstSafe = [1, 17, 8] as const
const firstCdiEngine = 25

export async function findSupport(
  config: ToolkitConfig,
  engine: EngineInfo,
  uuids: readonly string[],
): Promise<Support> {
  const hook = config.hook ?? findProgram('nvidia-container-runtime-hook')
  const cdi = config.mode === 'nvidia' ? 'CDI is switched off' : await cdiProblem(engine, uuids)
  const refuse = (refusal: string): Support => ({ mode: null, toolkit: null, refusal })
  if (config.mode === 'cdi' && cdi !== null) return refuse(cdi)
  if (cdi !== null && hook === null)
    return refuse(
      `the engine can't give a GPU to a container: there is no nvidia-container-runtime-hook on the PATH, and ${cdi}; ` +
        `install nvidia-container-toolkit ${firstSafe.join('.')} or newer and restart the engine`,
    )
  const mode = cdi === null ? 'cdi' : 'nvidia'
  const programs =
    mode === 'nvidia'
      ? [hook]
      : [findProgram('nvidia-ctk'), findProgram('nvidia-cdi-hook'), config.hook ?? null]
  const versions = await Promise.all(
    programs.filter((program) => program !== null).map((program) => versionOf(program)),
  )
  const known = versions.filter((version) => version !== null).toSorted(compareVersions)
  const toolkit = known[0] ?? null
  return { mode, toolkit, refusal: config.requireToolkit ? toolkitProblem(toolkit) : null }
}

/** Why a toolkit of that version is not used; null when it is. */
export function toolkitProblem(version: string | null): string | null {
  const wanted = firstSafe.join('.')
  const todo = `install nvidia-container-toolkit ${wanted} or newer, or set gpu.requireToolkit to false if every image is your own`
  if (version === null)
    return `the version of the NVIDIA container toolkit can't be told, and those before ${wanted} let an image escape (CVE-2025-23266); ${todo}`
  return compareVersions(version, wanted) < 0
    ? `the NVIDIA container toolkit is ${version}, and those before ${wanted} let an image escape (CVE-2025-23266); ${todo}`
    : null
}

/** By numbers; a pre-release comes before its release. */
export function compareVersions(a: string, b: string): number {
  const parse = (version: string): number[] => {
    const [release = '', pre] = version.split('-')
    return [...release.split('.').map(Number), pre === undefined ? 1 : 0]
  }
  const [left, right] = [parse(a), parse(b)]
  const index = left.findIndex((part, at) => part !== right[at])
  return index < 0 ? 0 : (left[index] ?? 0) - (right[index] ?? 0)
}

/** Of the line `NVIDIA Container Runtime Hook version 1.17.8`. */
export function parseToolkitVersion(text: string): string | null {
  return /\bversion:? v?(\d+\.\d+\.\d+(?:-[\w.]+)?)/i.exec(text)?.[1] ?? null
}

async function versionOf(program: string): Promise<string | null> {
  const answer = await run(program, ['--version'], { timeout: versionTimeoutMs }).catch(() => null)
  return answer === null ? null : parseToolkitVersion(`${answer.stdout}\n${answer.stderr}`)
}

/** null when the engine can find each of the GPUs by a device spec. */
async function cdiProblem(engine: EngineInfo, uuids: readonly string[]): Promise<string | null> {
  const { cdi, version } = engine
  if (Number(version.split('.')[0]) < firstCdiEngine)
    return `engine ${version} is too old for CDI (${firstCdiEngine} has it)`
  if (cdi === undefined || cdi.specDirs.length === 0) return 'CDI is off in the engine'
  if (cdi.devices !== null) {
    const devices = new Set(cdi.devices)
    const unknown = uuids.find((uuid) => !devices.has(`nvidia.com/gpu=${uuid}`))
    return unknown === undefined ? null : notNamed(unknown, cdi.specDirs)
  }
  const specs = await readSpecs(cdi.specDirs)
  for (const uuid of uuids) {
    const naming = specs.filter(({ text }) => text.includes(uuid)).map(({ file }) => file)
    if (naming.length === 0) return notNamed(uuid, cdi.specDirs)
    if (naming.length > 1)
      return `${uuid} is in two device specs, and the engine takes neither: remove one of ${naming.join(', ')}`
  }
  return null
}

const notNamed = (uuid: string, dirs: readonly string[]): string =>
  `no device spec in ${dirs.join(', ')} names ${uuid} (nvidia-ctk cdi generate --device-name-strategy=uuid makes one)`

async function readSpecs(
  directories: readonly string[],
): Promise<{ file: string; text: string }[]> {
  const found: { file: string; text: string }[] = []
  for (const directory of directories)
    for (const name of await readdir(directory).catch(() => [] as string[])) {
      if (!/\.(json|ya?ml)$/.test(name)) continue
      const file = path.join(directory, name)
      const text = await readFile(file, 'utf8').catch(() => '')
      if (text.includes('nvidia.com/gpu')) found.push({ file, text })
    }
  return found
}

export function findProgram(name: string): string | null {
  for (const directory of (process.env['PATH'] ?? '').split(':')) {
    if (!path.isAbsolute(directory)) continue
    const file = path.join(directory, name)
    try {
      accessSync(file, constants.X_OK)
      return file
    } catch {
      continue
    }
  }
  return null
}
