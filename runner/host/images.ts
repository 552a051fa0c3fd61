/** Our images and those of tasks, built on the engine that the daemon uses. */
import type { Readable } from 'node:stream'
import { DockerEngine } from '../../daemon/engine/docker.ts'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { busyboxImage } from '../../images/busybox-image.ts'
import {
  buildImages,
  imageTags,
  inspect,
  type BuiltImage,
  type ImageName,
  type ImageProgress,
} from '../../images/build.ts'
import { buildLooseImage, buildTaskImage } from '../../images/task-image.ts'
import { ensureTools } from '../../images/tools.ts'
import type { Task, TaskImage } from '../task/task.ts'

export interface ImageHost {
  readonly client: DaemonClient
  readonly stateDir: string
  readonly say: (what: string) => void
  readonly signal?: AbortSignal
}

/** One line when a build starts and one when it ends; the lines of a build only when it fails. */
function progress(say: ImageHost['say']): (event: ImageProgress) => void {
  const started = new Map<string, number>()
  return ({ image, phase }) => {
    if (phase === 'started') {
      started.set(image, performance.now())
      say(`building image ${image}`)
    } else if (phase === 'done') {
      const since = started.get(image)
      if (since !== undefined)
        say(`built image ${image} in ${Math.round((performance.now() - since) / 1000)} s`)
    }
  }
}

export async function buildOurImages<const Name extends ImageName>(
  names: readonly Name[],
  host: ImageHost,
): Promise<Record<Name, BuiltImage>> {
  const { engineSocket } = await host.client.health(host)
  await using engine = await DockerEngine.connect({ socketPath: engineSocket })
  return await buildImages(names, { ...host, engine, onProgress: progress(host.say) })
}

/** The id that a task's containers are started by: resolved from its digest, or built once from its Dockerfile. */
export async function taskImageId(task: Pick<Task, 'image'>, host: ImageHost): Promise<string> {
  return imageId(task.image, host)
}

/** Of the image that hidden tests run in, where it is another than the task's; else null. */
export async function verifierImageId(task: Task, host: ImageHost): Promise<string | null> {
  const image = task.verifier.place?.image ?? null
  return image === null ? null : imageId(image, host)
}

async function imageId(image: TaskImage, host: ImageHost): Promise<string> {
  if (image.kind === 'reference' && image.loose === undefined)
    return (await host.client.inspectImage(image.reference, host)).id
  const { engineSocket } = await host.client.health(host)
  await using engine = await DockerEngine.connect({ socketPath: engineSocket })
  const options = { ...host, engine, onProgress: progress(host.say) }
  if (image.kind === 'dockerfile')
    return (await buildTaskImage(image.context, { ...options, tags: image.tags === true })).id
  const parent = await host.client.inspectImage(image.reference, host)
  const { folder = '', workdir = null } = image.loose ?? {}
  const place = workdir ?? (parent.workdir === '' ? '/' : parent.workdir)
  return (await buildLooseImage(folder, { parent: parent.id, workdir: place }, options)).id
}

/** Hands the image's tar (configuration and every layer) to `read`, as it comes from the engine. */
export async function withSavedImage<T>(
  id: string,
  host: Omit<ImageHost, 'say' | 'stateDir'>,
  read: (tar: Readable) => Promise<T>,
): Promise<T> {
  const { engineSocket } = await host.client.health(host)
  await using engine = await DockerEngine.connect({ socketPath: engineSocket })
  const tar = await engine.saveImage(id, host)
  try {
    return await read(tar)
  } finally {
    tar.destroy()
  }
}

/** An image to open any sandbox with: our base where it has been built, else one that holds busybox alone. */
export async function smallestImageId(host: Omit<ImageHost, 'say'>): Promise<string> {
  const { engineSocket } = await host.client.health(host)
  await using engine = await DockerEngine.connect({ socketPath: engineSocket })
  const base = await inspect(imageTags.base, { ...host, engine })
  if (base !== undefined) return base.id
  const { busyboxPath } = await ensureTools(host.stateDir, host)
  return (await busyboxImage({ ...host, engine, busyboxPath })).id
}
