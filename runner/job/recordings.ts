/** Where the recording for one run of one task is: DIR/<task>/<run>.jsonl, the task by full name or its last part. */
import { access } from 'node:fs/promises'
import { join } from 'node:path'
import { RunnerError } from '../errors.ts'

export async function recordingPath(
  recordings: string,
  task: string,
  run: number,
): Promise<string> {
  const short = task.replace(/^.*\//, '')
  const candidates = [...new Set([task, short])].map((name) =>
    join(recordings, name, `${run}.jsonl`),
  )
  for (const path of candidates)
    if (
      await access(path).then(
        () => true,
        () => false,
      )
    )
      return path
  throw new RunnerError(
    'config_invalid',
    'operator',
    `model.upstream.recordings: no recording for run ${run} of ${task}; looked for ${candidates.join(' and ')}. Ask for fewer runs, or record one`,
    { facts: { task, run } },
  )
}
