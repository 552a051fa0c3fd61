/**
 * Builds our images where they are missing or their recipe changed. An image carries its recipe's hash as the label
 * `closedbook.recipe`; the hash covers the recipe's files, its pins and its base's recipe, and nothing of this machine.
 * No image comes from a registry: the base is made from Debian packages and imported, the others start from it.
 */
import type { BuildSpec, Engine, ImageInfo } from '../daemon/engine/engine.ts'
import { EngineError } from '../daemon/errors.ts'
import { withBaseRoot } from './base-root.ts'
import { withBuildLock } from './build-lock.ts'
import { caBundle, pipConfig, proxyArguments } from './client-config.ts'
import { packContext, readContext, recipeHash, textEntry } from './context.ts'
import type { ContextEntry } from './context.ts'
import { digests } from './digests.ts'
import { feed } from './feed.ts'

/** Built by `closedbook images`; enough for the quickstart and the tests. */
export const imageNames = ['base', 'harness', 'sglang-cpu'] as const
/** Built when a task that starts from them is first tried, for their size. */
export const largeImageNames = ['sglang-radix'] as const
export const allImageNames = [...imageNames, ...largeImageNames] as const
export type ImageName = (typeof allImageNames)[number]

export const imageTags: Readonly<Record<ImageName, string>> = {
  base: digests.base.tag,
  harness: digests.harness.tag,
  'sglang-cpu': digests['sglang-cpu'].tag,
  'sglang-radix': digests['sglang-radix'].tag,
}

export const recipeLabel = 'closedbook.recipe'

export interface ImageProgress {
  /** One of ours, or the tag of a task's image. */
  readonly image: string
  readonly phase: 'cached' | 'started' | 'line' | 'done'
  readonly text: string
}

export interface BuildOptions {
  readonly engine: Engine
  /** Scratch space while building, and the lock; nothing stays there. */
  readonly stateDir: string
  readonly onProgress?: ((progress: ImageProgress) => void) | undefined
  /** A Debian mirror for debootstrap; its own default otherwise. */
  readonly debianMirror?: string | undefined
  readonly signal?: AbortSignal | undefined
}

export interface BuiltImage {
  readonly id: string
  readonly tag: string
}

interface Recipe {
  readonly entries: readonly ContextEntry[]
  readonly hash: string
}

// What goes into each image's context; README and notes beside it change nothing.
const recipeFiles: Readonly<Record<ImageName, readonly string[]>> = {
  base: ['build.sh'],
  harness: ['Dockerfile', 'requirements.lock', 'docker'],
  'sglang-cpu': ['Dockerfile', 'requirements.lock', 'build.sh', 'gitconfig', 'gitignore'],
  'sglang-radix': ['Dockerfile', 'requirements.lock', 'torch.sh', 'debs.lock'],
}
// Both repositories of SGLang are made in the same way.
const repositoryFiles = ['build.sh', 'gitconfig', 'gitignore']

const baseChanges = [
  'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  'ENV LANG=C.UTF-8',
  'CMD ["bash"]',
]

/** Images by name, built as needed: the base first, then the others side by side. Second calls cost one inspection each. */
export async function buildImages<const Name extends ImageName>(
  names: readonly Name[],
  options: BuildOptions,
): Promise<Record<Name, BuiltImage>> {
  const wanted = [...new Set<Name>(names)]
  const recipes = await readRecipes()
  const found = await Promise.all(
    wanted.map(async (name) => [name, await cached(name, recipes[name], options)] as const),
  )
  const missing = found.flatMap(([name, image]) => (image === undefined ? [name] : []))
  const built =
    missing.length === 0
      ? new Map<ImageName, BuiltImage>()
      : await withBuildLock(options.stateDir, options.signal, () =>
          buildMissing(missing, recipes, options),
        )
  const results = found.map(([name, image]) => [name, image ?? built.get(name)])
  return Object.fromEntries(results) as Record<Name, BuiltImage>
}

async function buildMissing(
  names: readonly ImageName[],
  recipes: Readonly<Record<ImageName, Recipe>>,
  options: BuildOptions,
): Promise<Map<ImageName, BuiltImage>> {
  await checkPlatform(options)
  const built = new Map<ImageName, BuiltImage>()
  const make = async (
    name: ImageName,
    work: (recipe: Recipe) => Promise<ImageInfo>,
  ): Promise<void> => {
    const recipe = recipes[name]
    // Another process may have built it while this one waited for the lock.
    const image = (await cached(name, recipe, options)) ?? (await build(name, recipe, work))
    built.set(name, image)
  }
  const build = async (
    name: ImageName,
    recipe: Recipe,
    work: (recipe: Recipe) => Promise<ImageInfo>,
  ): Promise<BuiltImage> => {
    const tag = imageTags[name]
    const startedAt = performance.now()
    const old = await inspect(tag, options)
    options.onProgress?.({ image: name, phase: 'started', text: `building ${tag}` })
    const { id } = await work(recipe)
    if (old !== undefined && old.id !== id) await options.engine.removeImage(old.id).catch(() => {})
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    options.onProgress?.({ image: name, phase: 'done', text: `built ${tag} in ${seconds} s` })
    return { id, tag }
  }
  await make('base', (recipe) => buildBase(recipe, options))
  const others = names.filter((name) => name !== 'base')
  await Promise.all(
    others.map((name) => make(name, (recipe) => buildFromBase(name, recipe, options))),
  )
  return built
}

function buildBase(recipe: Recipe, options: BuildOptions): Promise<ImageInfo> {
  const { engine, stateDir, debianMirror: mirror, signal } = options
  const onLine = (text: string): void =>
    options.onProgress?.({ image: 'base', phase: 'line', text })
  const labels = { [recipeLabel]: recipe.hash }
  return withBaseRoot(digests.base, { stateDir, mirror, onLine, signal }, (root, whole) =>
    engine.importImage(root, { tag: imageTags.base, labels, changes: baseChanges, signal: whole }),
  )
}

async function buildFromBase(
  name: ImageName,
  recipe: Recipe,
  { engine, onProgress, signal }: BuildOptions,
): Promise<ImageInfo> {
  let stage: string | undefined
  let current: string | undefined
  const context = packContext([
    ...recipe.entries,
    textEntry('ca.pem', caBundle(process.env)),
    textEntry('pip.conf', pipConfig(process.env)),
  ])
  const spec: BuildSpec = {
    context,
    tag: imageTags[name],
    network: 'host',
    buildArgs: { ...proxyArguments(process.env), BASE: imageTags.base },
    labels: { [recipeLabel]: recipe.hash },
    onLine: (text) => {
      // The classic builder prints each layer's id; the last one before the final FROM is the build stage.
      if (/^Step \d+\/\d+ : FROM /.test(text)) stage = current
      current = /^ ---> ([0-9a-f]{12})$/.exec(text)?.[1] ?? current
      onProgress?.({ image: name, phase: 'line', text: text.trimEnd() })
    },
  }
  const image = await feed(context, signal, (whole) => engine.buildImage(spec, { signal: whole }))
  // It doubles the disk space and holds this machine's client settings.
  if (stage !== undefined) await engine.removeImage(stage).catch(() => {})
  return image
}

/** The hash of each recipe, and what is in it. */
export async function readRecipes(): Promise<Readonly<Record<ImageName, Recipe>>> {
  const read = async (name: ImageName, words: readonly string[]): Promise<Recipe> => {
    const entries = await readContext(folderOf(name), { only: recipeFiles[name] })
    if (name === 'sglang-radix')
      entries.push(...(await readContext(folderOf('sglang-cpu'), { only: repositoryFiles })))
    const hash = await recipeHash(entries, [name, JSON.stringify(digests[name]), ...words])
    return { entries, hash }
  }
  const base = await read('base', baseChanges)
  return {
    base,
    harness: await read('harness', [base.hash]),
    'sglang-cpu': await read('sglang-cpu', [base.hash]),
    'sglang-radix': await read('sglang-radix', [base.hash]),
  }
}

const folderOf = (name: ImageName): string =>
  decodeURIComponent(new URL(name, import.meta.url).pathname)

async function cached(
  name: ImageName,
  recipe: Recipe,
  options: BuildOptions,
): Promise<BuiltImage | undefined> {
  const tag = imageTags[name]
  const image = await inspect(tag, options)
  if (image?.labels[recipeLabel] !== recipe.hash) return undefined
  options.onProgress?.({ image: name, phase: 'cached', text: `${tag} is up to date` })
  return { id: image.id, tag }
}

/** An image's facts, or undefined where the engine has none of that name. */
export async function inspect(
  reference: string,
  { engine, signal }: Pick<BuildOptions, 'engine' | 'signal'>,
): Promise<ImageInfo | undefined> {
  try {
    return await engine.inspectImage(reference, signal === undefined ? {} : { signal })
  } catch (error) {
    if (error instanceof EngineError && error.code === 'image_missing') return undefined
    throw error
  }
}

async function checkPlatform({ engine, signal }: BuildOptions): Promise<void> {
  const { architecture } = await engine.info(signal === undefined ? {} : { signal })
  if (architecture !== 'x86_64' && architecture !== 'amd64')
    throw new EngineError(
      'image_build_failed',
      'operator',
      `The images are pinned for linux/amd64 and this engine runs ${architecture}: use an x86_64 host`,
    )
}
