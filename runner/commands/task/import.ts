/** `closedbook task import SOURCE --out DIR`: Harbor directories and SWE-bench-style instances as our tasks. */
import { join } from 'node:path'
import { Option, type Command } from 'commander'
import { ClosedbookError } from '../../../daemon/protocol/errors.ts'
import type { DaemonClient } from '../../../daemon/protocol/client.ts'
import { RunnerError } from '../../errors.ts'
import { importHarbor } from '../../task/import/harbor.ts'
import { readInstances, type Instance } from '../../task/import/instances.ts'
import { sweBenchFiles } from '../../task/import/swe-bench.ts'
import { requireEmpty, writeTask } from '../../task/init/init.ts'
import { isPinned } from '../../task/image.ts'
import { isDirectory } from '../../task/tree.ts'
import { note, print, printJson, withContext } from '../context.ts'

interface ImportFlags {
  out: string
  image?: string
  workdir?: string
  area?: string
  source?: string
  hardware: 'cpu' | 'h100'
  instance?: string[]
  testCommand?: string
  results?: string
}

export function addTaskImport(task: Command): void {
  task
    .command('import')
    .description('make tasks of a Harbor directory, or of SWE-bench-style instances (JSON, JSONL)')
    .argument('<source>', 'a Harbor task directory, or a file with instances')
    .requiredOption('--out <dir>', 'the new task; of instances: the directory that they go under')
    .option(
      '--image <ref>',
      'name@sha256:…, or a tag that the engine has; {instance} stands for the id as image names spell it, {instance_id} for itself',
    )
    .option('--workdir <dir>', 'where the repository is in the image; of instances: /testbed')
    .option('--area <area>', 'what the tasks are about')
    .option(
      '--source <kind:ref>',
      'where they come from: release-note, roadmap-issue, maintainer or own',
    )
    .addOption(
      new Option('--hardware <class>', 'of instances').choices(['cpu', 'h100']).default('cpu'),
    )
    .option(
      '--instance <ids>',
      'only these, by id with commas between',
      (text: string, before: string[] | undefined) => [...(before ?? []), ...text.split(',')],
    )
    .option(
      '--test-command <command>',
      'of suites that are not pytest; {files} and {results} are filled in',
    )
    .option('--results <format>', 'with --test-command: junit, ctrf or tap')
    .option('--json', 'print JSON')
    .action(async (source: string, flags: ImportFlags, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const made = (await isDirectory(source))
          ? [await harbor(source, flags, client, signal)]
          : await instances(source, flags, client, signal)
        if (json) return printJson({ tasks: made })
        for (const dir of made) print(dir)
        note(`next: closedbook task lint ${made.slice(0, 3).join(' ')}`)
      }),
    )
}

async function harbor(
  from: string,
  flags: ImportFlags,
  client: DaemonClient,
  signal: AbortSignal,
): Promise<string> {
  const image = flags.image === undefined ? undefined : await pin(flags.image, client, signal)
  await importHarbor(from, flags.out, { ...flags, image, source: sourceOf(flags.source) })
  return flags.out
}

async function instances(
  file: string,
  flags: ImportFlags,
  client: DaemonClient,
  signal: AbortSignal,
): Promise<string[]> {
  const all = await readInstances(file)
  const wanted = flags.instance
  const unknown = wanted?.find((id) => !all.some(({ instance_id }) => instance_id === id))
  if (unknown !== undefined)
    throw new RunnerError('usage', 'operator', `${file} has no instance ${unknown}`)
  if (flags.image === undefined)
    throw new RunnerError(
      'usage',
      'operator',
      'instances name no image: give --image, e.g. swebench/sweb.eval.x86_64.{instance}:latest',
    )
  const made: string[] = []
  for (const instance of all) {
    if (wanted !== undefined && !wanted.includes(instance.instance_id)) continue
    const dir = join(flags.out, instance.instance_id)
    await requireEmpty(dir)
    const image = await pin(imageOf(flags.image, instance), client, signal)
    const files = sweBenchFiles(instance, {
      ...flags,
      image,
      workdir: flags.workdir ?? '/testbed',
      source: sourceOf(flags.source),
    })
    await writeTask(dir, files)
    made.push(dir)
  }
  return made
}

const imageOf = (pattern: string, { instance_id }: Instance): string =>
  pattern
    .replaceAll('{instance_id}', instance_id)
    .replaceAll('{instance}', instance_id.toLowerCase().replaceAll('__', '_1776_'))

/** The id of what a tag names on this engine; as it was given where there is no such image, which lint reports. */
async function pin(image: string, client: DaemonClient, signal: AbortSignal): Promise<string> {
  if (isPinned(image)) return image
  try {
    return (await client.inspectImage(image, { signal })).id
  } catch (error) {
    if (!(error instanceof ClosedbookError)) throw error
    note(`${image} is not pinned: ${error.message}`)
    return image
  }
}

function sourceOf(text: string | undefined): { kind: string; ref: string } | undefined {
  if (text === undefined) return undefined
  const [, kind, ref] = /^([a-z-]+):(.+)$/s.exec(text) ?? []
  if (kind !== undefined && ref !== undefined && kinds.includes(kind))
    return { kind, ref: ref.trim() }
  throw new RunnerError(
    'usage',
    'operator',
    `--source ${text}: write one of ${kinds.join(', ')}, a colon and a reference`,
  )
}

const kinds = ['release-note', 'roadmap-issue', 'maintainer', 'own']
