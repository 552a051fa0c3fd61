/**
 * The image of a task that brings a Dockerfile. It may start from one of our images by tag or from any image by digest;
 * a tag of somebody else moves, so it is refused, unless the caller takes what it stands for now (Harbor's tasks name
 * tags). Cached by the hash of the context and the ids of those images.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { BuildSpec } from '../daemon/engine/engine.ts'
import { EngineError } from '../daemon/errors.ts'
import { allImageNames, buildImages, imageTags, inspect, recipeLabel } from './build.ts'
import type { BuildOptions, BuiltImage } from './build.ts'
import { withBuildLock } from './build-lock.ts'
import { proxyArguments } from './client-config.ts'
import { packContext, readContext, recipeHash, textEntry } from './context.ts'
import type { ContextEntry } from './context.ts'
import { outsideImages } from './dockerfile.ts'
import { feed } from './feed.ts'

const pinned = /^(?:[^\s@]+@)?sha256:[0-9a-f]{64}$/

/** Builds `<environmentDir>/Dockerfile` with that folder as its context, unless it was built already; returns its id. */
export async function buildTaskImage(
  environmentDir: string,
  options: BuildOptions & { readonly tags?: boolean },
): Promise<BuiltImage> {
  const dockerfile = await readDockerfile(environmentDir)
  const parents = outsideImages(dockerfile)
  if (parents.length === 0 && !/^\s*from\s/im.test(dockerfile))
    throw refused(environmentDir, 'has no FROM: start it from one of our images or a digest')
  const ids: string[] = []
  for (const reference of parents) ids.push(await resolve(reference, environmentDir, options))

  const entries = await readContext(environmentDir)
  const hash = await recipeHash(entries, ['task', ...ids])
  const tag = `closedbook/task:${hash.slice(0, 20)}`
  return (
    (await cached(tag, hash, options)) ??
    withBuildLock(options.stateDir, options.signal, async () => {
      return (await cached(tag, hash, options)) ?? (await build(entries, tag, hash, options))
    })
  )
}

/** A prebuilt image with the files of a folder in its working directory. */
export async function buildLooseImage(
  folder: string,
  { parent, workdir }: { readonly parent: string; readonly workdir: string },
  options: BuildOptions,
): Promise<BuiltImage> {
  const files = (await readContext(folder)).map((entry) => ({
    ...entry,
    path: `files/${entry.path}`,
  }))
  const dockerfile = `FROM ${parent}\nCOPY ["files/", ${JSON.stringify(`${workdir.replace(/\/+$/, '')}/`)}]\n`
  const entries = [textEntry('Dockerfile', dockerfile), ...files]
  const hash = await recipeHash(entries, ['loose', parent])
  const tag = `closedbook/task:${hash.slice(0, 20)}`
  return (
    (await cached(tag, hash, options)) ??
    withBuildLock(options.stateDir, options.signal, async () => {
      return (await cached(tag, hash, options)) ?? (await build(entries, tag, hash, options))
    })
  )
}

async function build(
  entries: readonly ContextEntry[],
  tag: string,
  hash: string,
  { engine, onProgress, signal }: BuildOptions,
): Promise<BuiltImage> {
  onProgress?.({ image: tag, phase: 'started', text: `building ${tag}` })
  const context = packContext(entries)
  const spec: BuildSpec = {
    context,
    tag,
    network: 'host',
    buildArgs: proxyArguments(process.env),
    labels: { [recipeLabel]: hash },
    onLine: (text) => onProgress?.({ image: tag, phase: 'line', text: text.trimEnd() }),
  }
  const { id } = await feed(context, signal, (whole) => engine.buildImage(spec, { signal: whole }))
  onProgress?.({ image: tag, phase: 'done', text: `built ${tag}` })
  return { id, tag }
}

async function cached(
  tag: string,
  hash: string,
  options: BuildOptions,
): Promise<BuiltImage | undefined> {
  const image = await inspect(tag, options)
  if (image?.labels[recipeLabel] !== hash) return undefined
  options.onProgress?.({ image: tag, phase: 'cached', text: `${tag} is up to date` })
  return { id: image.id, tag }
}

/** The id of an image that the Dockerfile names, made or pulled where it isn't here yet. */
async function resolve(
  reference: string,
  environmentDir: string,
  options: BuildOptions & { readonly tags?: boolean },
): Promise<string> {
  const own = allImageNames.find((name) => imageTags[name] === reference)
  if (own !== undefined) return (await buildImages([own], options))[own].id
  if (!pinned.test(reference) && options.tags !== true) {
    const ours = Object.values(imageTags).join(', ')
    throw new EngineError(
      'image_not_pinned',
      'task',
      `${join(environmentDir, 'Dockerfile')}: ${reference} is not pinned; write name@sha256:…, or start from one of ${ours}`,
    )
  }
  const { engine, onProgress, signal } = options
  const waits = signal === undefined ? {} : { signal }
  const here = await inspect(reference, options)
  const onLine = (text: string): void => onProgress?.({ image: reference, phase: 'line', text })
  return (here ?? (await engine.pullImage(reference, { ...waits, onLine }))).id
}

async function readDockerfile(environmentDir: string): Promise<string> {
  try {
    return await readFile(join(environmentDir, 'Dockerfile'), 'utf8')
  } catch (error) {
    throw refused(environmentDir, "can't be read; a task's image is built from it", error)
  }
}

const refused = (environmentDir: string, why: string, cause?: unknown): EngineError =>
  new EngineError('image_build_failed', 'task', `${join(environmentDir, 'Dockerfile')} ${why}`, {
    cause,
  })
