/** An engine of images alone, in memory: enough to see what is built, from what, and what is left. */
import { randomBytes } from 'node:crypto'
import type { Readable } from 'node:stream'
import tar from 'tar-stream'
import type { BuildSpec, Engine, EngineInfo, ImageInfo } from '../../daemon/engine/engine.ts'
import { EngineError } from '../../daemon/errors.ts'

export interface SeenBuild {
  readonly tag: string
  readonly files: ReadonlyMap<string, string>
  readonly spec: BuildSpec
}

export class ImageEngine {
  readonly images = new Map<string, ImageInfo>()
  readonly builds: SeenBuild[] = []
  readonly pulled: string[] = []
  readonly removed: string[] = []
  architecture = 'x86_64'
  /** What a build prints, a line each. */
  printed: readonly string[] = []

  add(tag: string, labels: Readonly<Record<string, string>> = {}): ImageInfo {
    const id = `sha256:${randomBytes(32).toString('hex')}`
    const facts = {
      sizeBytes: 1,
      repoDigests: [],
      repoTags: [tag],
      env: [],
      user: '',
      entrypoint: [],
      volumes: [],
      workdir: '',
    }
    const image: ImageInfo = { id, ...facts, labels }
    this.images.set(tag, image)
    return image
  }

  async info(): Promise<Partial<EngineInfo>> {
    return { architecture: this.architecture }
  }

  async inspectImage(reference: string): Promise<ImageInfo> {
    const image = this.images.get(reference)
    if (image === undefined)
      throw new EngineError('image_missing', 'operator', `no image ${reference}`)
    return image
  }

  async buildImage(spec: BuildSpec): Promise<ImageInfo> {
    this.builds.push({ tag: spec.tag, files: await filesOf(spec.context), spec })
    for (const line of this.printed) spec.onLine?.(line)
    return this.add(spec.tag, spec.labels)
  }

  async pullImage(reference: string): Promise<ImageInfo> {
    this.pulled.push(reference)
    return this.add(reference)
  }

  async removeImage(reference: string): Promise<void> {
    this.removed.push(reference)
  }

  /** Whatever else is called is missing and fails the test. */
  get engine(): Engine {
    return this as unknown as Engine
  }
}

/** Paths of a tar with their kind, mode and content in one line. */
export async function filesOf(context: Readable): Promise<Map<string, string>> {
  const files = new Map<string, string>()
  const extract = tar.extract()
  context.on('error', (error: Error) => extract.destroy(error))
  context.pipe(extract)
  for await (const entry of extract) {
    const chunks: Buffer[] = []
    for await (const chunk of entry as AsyncIterable<Buffer>) chunks.push(chunk)
    const { name, type, mode, linkname } = entry.header
    const text = type === 'symlink' ? (linkname ?? '') : Buffer.concat(chunks).toString()
    files.set(name.replace(/\/$/, ''), `${type} ${(mode ?? 0).toString(8)} ${text}`)
  }
  return files
}
