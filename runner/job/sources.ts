/**
 * Where a job came from, kept beside its plan so that it can be resumed: task directories and configurations as they
 * were named. What they hold is checked against the plan's digests when the job goes on.
 */
import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { RunnerError } from '../errors.ts'
import { writeJsonAtomic } from '../json-file.ts'
import { trajectoryOptionsSchema } from '../harness/atif-schema.ts'
import { harborOptionsSchema } from '../task/options.ts'
import { taskModes } from '../qualify/gate.ts'
import { loadConfiguration, plainConfiguration, type Configuration } from './configuration.ts'
import { loadJobFile } from './job-file.ts'
import { sourcesFile } from './layout.ts'

export const sourcesSchema = z.strictObject({
  schema: z.literal('closedbook.sources/1'),
  taskDirs: z.array(z.string()).min(1),
  configurations: z.array(
    z.discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('file'), path: z.string(), harness: z.string().nullable() }),
      z.strictObject({ kind: z.literal('harness'), harness: z.string(), baseDir: z.string() }),
      z.strictObject({ kind: z.literal('job'), path: z.string() }),
    ]),
  ),
  concurrency: z.int().positive(),
  harbor: harborOptionsSchema.optional(),
  perConfiguration: z.int().positive().optional(),
  perEndpoint: z.int().positive().optional(),
  budgetUsd: z.number().positive().optional(),
  /** Which tasks may be tried; absent: as is usual for the harnesses. */
  require: z.enum(taskModes).optional(),
  trajectory: trajectoryOptionsSchema.optional(),
})
export type Sources = z.infer<typeof sourcesSchema>

export async function configurationsOf(
  sources: Pick<Sources, 'configurations'>,
): Promise<Configuration[]> {
  const all: Configuration[] = []
  for (const source of sources.configurations)
    if (source.kind === 'job') all.push(...(await loadJobFile(source.path)).configurations)
    else if (source.kind === 'harness')
      all.push(await plainConfiguration(source.harness, source.baseDir))
    else
      all.push(
        await loadConfiguration(
          source.path,
          source.harness === null ? {} : { harness: source.harness },
        ),
      )
  return all
}

export const writeSources = (jobDir: string, sources: Sources): Promise<void> =>
  writeJsonAtomic(sourcesFile(jobDir), sources)

export async function readSources(jobDir: string): Promise<Sources> {
  const file = sourcesFile(jobDir)
  const parsed = sourcesSchema.safeParse(
    await readFile(file, 'utf8').then(
      (text): unknown => JSON.parse(text),
      () => null,
    ),
  )
  if (parsed.success) return parsed.data
  throw new RunnerError(
    'plan_invalid',
    'operator',
    `${file} is missing or damaged, so the job can't be resumed; its results can still be reported`,
  )
}
