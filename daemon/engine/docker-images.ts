/** Importing, building and pulling images: each a stream of progress lines in which the engine may report a failure. */
import type { Readable } from 'node:stream'
import type Docker from 'dockerode'
import { EngineError } from '../errors.ts'
import type { BuildSpec, ImageInfo } from './engine.ts'
import { ask, endOnAbort, engineError } from './driver-error.ts'
import type { Ask } from './driver-error.ts'
import { jsonLines } from './json-lines.ts'

const inspectDeadlineMs = 60_000
const keptLines = 20

export interface ImageDeps {
  readonly docker: Docker
  readonly socketPath: string
}

export async function inspectImage(
  { docker, socketPath }: ImageDeps,
  reference: string,
  signal?: AbortSignal,
): Promise<ImageInfo> {
  const found = await ask(
    { action: `inspect image ${reference}`, image: reference, socketPath },
    { signal, deadlineMs: inspectDeadlineMs },
    () => docker.getImage(reference).inspect(),
  )
  return {
    id: found.Id,
    sizeBytes: found.Size,
    repoDigests: found.RepoDigests ?? [],
    repoTags: found.RepoTags ?? [],
    env: found.Config.Env ?? [],
    user: found.Config.User ?? '',
    workdir: found.Config.WorkingDir ?? '',
    entrypoint: [found.Config.Entrypoint ?? []].flat(),
    volumes: Object.keys(found.Config.Volumes ?? {}),
    labels: found.Config.Labels ?? {},
  }
}

export async function importImage(
  deps: ImageDeps,
  tar: Readable,
  options: {
    tag: string
    labels?: Readonly<Record<string, string>>
    changes?: readonly string[]
    signal?: AbortSignal
  },
): Promise<ImageInfo> {
  const what: Ask = { action: `import image ${options.tag}`, socketPath: deps.socketPath }
  const labels = Object.entries(options.labels ?? {}).map(
    ([name, value]) => `LABEL ${JSON.stringify(name)}=${JSON.stringify(value)}`,
  )
  const [repo, tag] = splitTag(options.tag)
  const progress = await ask(what, { signal: options.signal }, (abortSignal) =>
    deps.docker.importImage(tar, {
      repo,
      tag,
      changes: [...labels, ...(options.changes ?? [])],
      abortSignal,
    }),
  )
  await follow(progress, what, { signal: options.signal })
  return inspectImage(deps, options.tag, options.signal)
}

export async function buildImage(
  deps: ImageDeps,
  spec: BuildSpec,
  signal?: AbortSignal,
): Promise<ImageInfo> {
  const what: Ask = { action: `build image ${spec.tag}`, socketPath: deps.socketPath }
  const progress = await ask(what, { signal }, (abortSignal) =>
    deps.docker.buildImage(spec.context, {
      t: spec.tag,
      networkmode: spec.network,
      rm: true,
      forcerm: true,
      version: '1',
      abortSignal,
      ...(spec.dockerfile === undefined ? {} : { dockerfile: spec.dockerfile }),
      ...(spec.buildArgs === undefined ? {} : { buildargs: { ...spec.buildArgs } }),
      ...(spec.labels === undefined ? {} : { labels: { ...spec.labels } }),
    }),
  )
  await follow(progress, what, { signal, onLine: spec.onLine })
  return inspectImage(deps, spec.tag, signal)
}

export async function pullImage(
  deps: ImageDeps,
  reference: string,
  options: { onLine?: (line: string) => void; signal?: AbortSignal } = {},
): Promise<ImageInfo> {
  const what: Ask = {
    action: `pull image ${reference}`,
    image: reference,
    socketPath: deps.socketPath,
  }
  const progress = await ask(
    what,
    { signal: options.signal },
    (abortSignal) => deps.docker.pull(reference, { abortSignal }) as Promise<NodeJS.ReadableStream>,
  )
  await follow(progress, what, options)
  return inspectImage(deps, reference, options.signal)
}

export async function exportImage(
  { docker, socketPath }: ImageDeps,
  reference: string,
  labels: Readonly<Record<string, string>>,
  signal?: AbortSignal,
): Promise<Readable> {
  const what = { action: `export image ${reference}`, image: reference, socketPath }
  const container = await ask(what, { signal }, () =>
    docker.createContainer({
      Image: reference,
      Entrypoint: ['true'],
      Labels: { ...labels },
      HostConfig: { NetworkMode: 'none' },
    }),
  )
  const remove = (): void => void container.remove({ force: true, v: true }).catch(() => {})
  try {
    const tar = (await ask(what, { signal }, () => container.export())) as Readable
    return endOnAbort(tar, signal).once('close', remove)
  } catch (error) {
    remove()
    throw error
  }
}

export async function saveImage(
  { docker, socketPath }: ImageDeps,
  reference: string,
  signal?: AbortSignal,
): Promise<Readable> {
  const tar = await ask(
    { action: `save image ${reference}`, image: reference, socketPath },
    { signal },
    () => docker.getImage(reference).get(),
  )
  return endOnAbort(tar as Readable, signal)
}

function splitTag(reference: string): [repo: string, tag: string] {
  const colon = reference.lastIndexOf(':')
  return colon > reference.lastIndexOf('/')
    ? [reference.slice(0, colon), reference.slice(colon + 1)]
    : [reference, 'latest']
}

/** Reads progress to its end; throws what the engine reported in the stream, with the last lines before it. */
async function follow(
  progress: NodeJS.ReadableStream,
  what: Ask,
  options: { signal?: AbortSignal | undefined; onLine?: ((line: string) => void) | undefined },
): Promise<void> {
  const stream = endOnAbort(progress as Readable, options.signal)
  const last: string[] = []
  try {
    for await (const entry of jsonLines(stream as AsyncIterable<Buffer>)) {
      const failure = entry['error']
      if (typeof failure === 'string') throw failed(failure, what, last)
      for (const line of textOf(entry).split(/\r?\n/)) {
        if (line.trim() === '') continue
        last.push(line)
        if (last.length > keptLines) last.shift()
        options.onLine?.(line)
      }
    }
  } catch (thrown) {
    options.signal?.throwIfAborted()
    throw engineError(thrown, what)
  }
}

function textOf(entry: Readonly<Record<string, unknown>>): string {
  if (typeof entry['stream'] === 'string') return entry['stream']
  const { id, status, progress } = entry as Record<string, string | undefined>
  // Progress bars repeat many times a second; the words around them do not.
  if (status === undefined || progress !== undefined) return ''
  return id === undefined ? status : `${id}: ${status}`
}

function failed(failure: string, what: Ask, last: readonly string[]): EngineError {
  if (/no space left on device/i.test(failure)) return engineError(new Error(failure), what)
  if (what.image !== undefined)
    return /not found|manifest unknown|does not exist/i.test(failure)
      ? new EngineError(
          'image_missing',
          'operator',
          `The registry has no image ${what.image}: ${failure}`,
        )
      : new EngineError(
          'engine_refused',
          'infra',
          `The engine could not ${what.action}: ${failure}`,
        )
  return new EngineError(
    'image_build_failed',
    'operator',
    `The engine could not ${what.action}: ${failure}\n${last.join('\n')}`.trim(),
    { facts: { lastLines: [...last] } },
  )
}
