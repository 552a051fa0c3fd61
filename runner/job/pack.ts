/**
 * A job's tasks and configurations as files, packed by content, so that a worker on a host that lacks them can run its
 * trials. Configurations are written as they were resolved, with what they name beside them: prices and policy are in
 * them, scripts, command files and recordings lie below. Keys stay where they are; only their source is named.
 */
import { cp, lstat, mkdtemp, readdir, realpath, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { readCommandFile } from '../harness/command-file.ts'
import type { Harness } from '../harness/harness.ts'
import { harnessText } from '../harness/harness.ts'
import { makeDirectory, writeJsonAtomic } from '../json-file.ts'
import { evidenceFolder, textDigest } from '../task/tree.ts'
import type { Task } from '../task/task.ts'
import { packDirectory } from '../trial/bundle.ts'
import type { Configuration } from './configuration.ts'
import { recordingPath } from './recordings.ts'

/** More is not carried: such a task has to lie at the same path on each host. */
const maxPackBytes = 64 * 1024 * 1024
/** Of the files as they lie; beyond it they aren't even read, for a pack is made in memory. */
const maxFileBytes = 256 * 1024 * 1024

export interface Pack {
  readonly digest: string
  readonly bytes: Buffer
}

export interface JobPacks {
  /** In the order of the plan's tasks; null: too big. */
  readonly tasks: readonly (Pack | null)[]
  readonly configurations: Pack | null
}

export async function packJob(
  job: {
    readonly tasks: readonly Task[]
    readonly configurations: readonly Configuration[]
    readonly runs: number
  },
  say: (what: string) => void,
): Promise<JobPacks> {
  const tasks: (Pack | null)[] = []
  for (const task of job.tasks) {
    const packed = await pack(task.dir)
    if (packed === null)
      say(`task ${task.name} is too big to carry: other hosts need it at ${task.dir}`)
    tasks.push(packed)
  }
  const configurations = await packConfigurations(job)
  if (configurations === null)
    say(
      'the recordings are too big to carry: other hosts need the configurations at the same paths',
    )
  return { tasks, configurations }
}

async function packConfigurations({
  tasks,
  configurations,
  runs,
}: Parameters<typeof packJob>[0]): Promise<Pack | null> {
  const root = await mkdtemp(path.join(os.tmpdir(), 'closedbook-pack-'))
  try {
    for (const configuration of configurations) {
      const { name, model, resources, pass, limits, policy } = configuration
      const beside = path.join(root, `${name}.d`)
      await makeDirectory(beside)
      const upstream = model?.upstream
      if (upstream?.kind === 'replay')
        for (const task of tasks)
          for (let run = 1; run <= runs; run += 1)
            await cp(
              await recordingPath(upstream.recordings, task.name, run),
              path.join(beside, 'recordings', task.name, `${run}.jsonl`),
            )
      const harness = await packHarness(configuration.harness, beside)
      await writeJsonAtomic(path.join(root, packedName(name)), {
        name,
        harness,
        limits,
        policy,
        ...(model !== null && {
          model: {
            ...model,
            ...(upstream?.kind === 'replay' && {
              upstream: { ...upstream, recordings: `${name}.d/recordings` },
            }),
          },
        }),
        ...(resources !== null && { resources }),
        ...(pass !== null && { pass }),
      })
    }
    return await pack(root)
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

/** Where a configuration lies in the pack of all. */
export const packedName = (configuration: string): string => `${configuration}.json`

async function packHarness(harness: Harness, beside: string): Promise<string> {
  if (!('file' in harness)) return harnessText(harness)
  const file = path.join(beside, 'driver')
  if (harness.kind === 'script') await cp(harness.file, file)
  else {
    const { directory, ...command } = await readCommandFile(harness.file)
    if (directory !== undefined)
      await cp(await realpath(directory), path.join(beside, 'mounted'), {
        recursive: true,
        verbatimSymlinks: true,
      })
    await writeJsonAtomic(file, {
      ...command,
      ...(directory !== undefined && { directory: 'mounted' }),
    })
  }
  return `${harness.kind}:${path.basename(beside)}/driver`
}

async function pack(directory: string): Promise<Pack | null> {
  if ((await fileBytes(directory)) > maxFileBytes) return null
  const tar = await packDirectory(directory, new Set([evidenceFolder]))
  const bytes = await promisify(gzip)(tar)
  if (bytes.length > maxPackBytes) return null
  return { digest: textDigest(bytes), bytes }
}

async function fileBytes(directory: string): Promise<number> {
  let bytes = 0
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true }))
    if (entry.isFile() && !isEvidence(directory, entry.parentPath))
      bytes += (await lstat(path.join(entry.parentPath, entry.name))).size
  return bytes
}

const isEvidence = (directory: string, folder: string): boolean =>
  path.relative(directory, folder).split(path.sep)[0] === evidenceFolder
