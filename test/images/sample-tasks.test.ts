/** The sample benchmark as files: tasks that load and lint, recordings for every planned run, pins. No engine, no image. */
import { readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { recordedCallSchema } from '../../daemon/protocol/recording.ts'
import { allImageNames, imageTags } from '../../images/build.ts'
import { outsideImages } from '../../images/dockerfile.ts'
import { loadJobFile } from '../../runner/job/job-file.ts'
import { recordingPath } from '../../runner/job/recordings.ts'
import { lintTask } from '../../runner/task/lint/lint.ts'
import { loadTask } from '../../runner/task/load.ts'

const images = fileURLToPath(new URL('../../images', import.meta.url))
const tasks = join(images, 'tasks')
const names = (await readdir(tasks)).toSorted()

t.test(
  'every sample task lints without a finding and lists the tests that it expects',
  async (t) => {
    for (const name of names) {
      const { findings } = await lintTask(join(tasks, name), { image: null })
      t.strictSame(findings, [], name)
      const task = await loadTask(join(tasks, name))
      t.equal(task.name, `closedbook/${name}`)
      t.ok((task.suites.functional.expected?.length ?? 0) >= 20, `${name}: functional`)
      t.ok((task.suites.regression?.expected?.length ?? 0) >= 10, `${name}: regression`)
    }
  },
)

t.test('each area of a serving benchmark has a sample, and one needs a GPU', async (t) => {
  const loaded = await Promise.all(names.map((name) => loadTask(join(tasks, name))))
  t.strictSame([...new Set(loaded.map(({ area }) => area))].toSorted(), [
    'cache-systems',
    'gpu-kernels',
    'model-integration',
    'public-api',
  ])
  t.strictSame(
    loaded.filter(({ hardware }) => hardware === 'h100').map(({ name }) => name),
    ['closedbook/moe-masked-quant'],
  )
})

t.test('tasks start from our images, or from one by digest', async (t) => {
  const ours = allImageNames.map((name) => imageTags[name])
  for (const name of names) {
    const text = await readFile(join(tasks, name, 'environment/Dockerfile'), 'utf8')
    for (const image of outsideImages(text))
      t.ok(ours.includes(image) || /@sha256:[0-9a-f]{64}$/.test(image), `${name}: ${image}`)
  }
})

t.test('the sample benchmark has a recording for each of its 36 trials', async (t) => {
  const job = await loadJobFile(join(images, 'sample-benchmark.yaml'))
  t.strictSame([job.taskDirs.length, job.configurations.length, job.runs], [6, 2, 3])
  t.not(job.configurations[0]?.name, job.configurations[1]?.name)
  const read = new Set<string>()
  for (const { name, model } of job.configurations)
    for (const dir of job.taskDirs) {
      const { name: task } = await loadTask(dir)
      const upstream = model?.upstream
      if (upstream?.kind !== 'replay') {
        t.fail(`${name} is no replay`)
        return
      }
      for (let run = 1; run <= job.runs; run++) {
        const text = await readFile(await recordingPath(upstream.recordings, task, run), 'utf8')
        if (read.has(text)) continue
        read.add(text)
        const calls = text.trim().split('\n')
        for (const [index, line] of calls.entries())
          t.equal(recordedCallSchema.parse(JSON.parse(line)).n, index, `${task} run ${run}`)
        t.match(calls.at(-1), /COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT/)
        t.match(text, /198\.51\.100\.7/, 'it tries the network, at an address of no one')
      }
    }
  t.equal(read.size, 12, 'one that solves its task and one that does not, each')
})

t.test('the packages that hold torch are pinned by version and hash', async (t) => {
  const lock = await readFile(join(images, 'sglang-radix/debs.lock'), 'utf8')
  t.match(lock, /^(?:[a-z0-9.+-]+ \S+ [0-9a-f]{64}\n)+$/)
  t.match(lock, /^python3-torch /m)
})
