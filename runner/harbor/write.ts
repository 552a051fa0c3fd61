/** `harbor/` of an execution: what Harbor's own tools read (`result.json`, `trajectory.json`), beside our own records. */
import { copyFile } from 'node:fs/promises'
import path from 'node:path'
import { packageVersion } from '../../daemon/protocol/version.ts'
import { makeDirectory, writeJsonAtomic } from '../json-file.ts'
import type { Configuration } from '../job/configuration.ts'
import type { Task } from '../task/task.ts'
import { evidenceNames } from '../trial/evidence.ts'
import type { Measured } from '../trial/trial.ts'
import { harborTrialResult } from './trial-result.ts'

export async function writeHarborFiles(input: {
  readonly task: Task
  readonly configuration: Pick<Configuration, 'harness' | 'model'>
  readonly trial: string
  readonly execution: string
  /** Of the execution. */
  readonly directory: string
  readonly measured: Measured
}): Promise<void> {
  const { task, configuration, measured, trial, execution } = input
  const directory = path.join(input.directory, 'harbor')
  await makeDirectory(directory)
  await writeJsonAtomic(
    path.join(directory, 'result.json'),
    harborTrialResult({
      task,
      trial,
      execution,
      directory,
      separate: task.verify === 'artifacts',
      harness: {
        kind: configuration.harness.kind,
        version: measured.reported?.version ?? packageVersion,
      },
      model: configuration.model?.name ?? null,
      measured,
    }),
  )
  // Absent where no agent was ever started.
  await copyFile(
    path.join(input.directory, evidenceNames.atif),
    path.join(directory, 'trajectory.json'),
  ).catch(() => {})
}
