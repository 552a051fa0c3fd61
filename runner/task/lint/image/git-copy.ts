/**
 * Takes a repository out of the task's image and its objects into a container of our own image, where our git asks
 * about them. Objects and `shallow` go in; of the rest only the texts that name objects are read, here. Nothing that
 * could make git run something (configuration, hooks, attributes, alternates) takes part.
 */
import { Readable } from 'node:stream'
import type { BytePath } from '../../../trial/path-name.ts'
import type { Sandbox } from '../../../trial/sandbox.ts'
import { readTar, type TarHeader } from '../../../trial/tar-reader.ts'
import { tarEnd, tarFile, tarHeader, tarPadding } from '../../../trial/tar-writer.ts'
import { signalOption } from '../../../trial/tree.ts'
import { gitFacts, isFactFile, type GitFacts } from './git-facts.ts'

export interface CopiedRepository extends GitFacts {
  /** Of the repository in the image, without a leading slash. */
  readonly directory: string
  /** Where its objects are in our container. */
  readonly at: string
  /** Files under objects/, as the image shows them. */
  readonly objects: ReadonlySet<string>
  /** objects/ is a link to elsewhere. */
  readonly linked: boolean
}

const maxFactBytes = 32 * 1024 * 1024

export async function copyRepository(options: {
  from: Sandbox
  to: Sandbox
  directory: string
  /** A name that is free in our container's /tmp. */
  name: string
  signal: AbortSignal
}): Promise<CopiedRepository> {
  const { from, to, directory, name, signal } = options
  const facts = new Map<string, string>()
  const objects = new Set<string>()
  let linked = false
  const { tar } = await from.readArchive(`/${directory}`, signalOption(signal))
  async function* parts(): AsyncGenerator<Buffer> {
    yield tarHeader({ path: name, kind: 'directory', mode: 0o755 })
    yield tarHeader({ path: `${name}/objects`, kind: 'directory', mode: 0o755 })
    let open: { header: TarHeader; fact: Buffer[] | null } | null = null
    let shallow: Buffer | null = null
    const close = (): Buffer | null => {
      if (open === null) return null
      const { header, fact } = open
      open = null
      if (fact === null) return tarPadding(header.size)
      const path = innerPath(header)
      const text = Buffer.concat(fact)
      facts.set(path, text.toString('latin1'))
      if (path === 'shallow') shallow = text
      return null
    }
    for await (const item of readTar(tar)) {
      if (Buffer.isBuffer(item)) {
        const held = open as { header: TarHeader; fact: Buffer[] | null } | null
        if (held === null) continue
        if (held.fact === null) yield item
        else held.fact.push(item)
        continue
      }
      const padding = close()
      if (padding !== null) yield padding
      const path = innerPath(item)
      if (path === 'objects' && item.kind === 'symlink') linked = true
      if (item.kind === 'directory' && path.startsWith('objects/'))
        yield tarHeader({ path: `${name}/${path}`, kind: 'directory', mode: 0o755 })
      if (item.kind !== 'file') continue
      if (isFactFile(path) && item.size <= maxFactBytes) open = { header: item, fact: [] }
      else if (path.startsWith('objects/') && !path.startsWith('objects/info/')) {
        objects.add(path)
        yield tarHeader({ path: `${name}/${path}`, kind: 'file', mode: 0o644, size: item.size })
        open = { header: item, fact: null }
      }
    }
    const padding = close()
    if (padding !== null) yield padding
    if (shallow !== null) yield tarFile(`${name}/shallow`, shallow)
    yield tarEnd()
  }
  await to.writeArchive('/tmp', Readable.from(parts()), signalOption(signal))
  return { ...gitFacts(facts), directory, at: `/tmp/${name}`, objects, linked }
}

/** Without the archive's first component, which is the directory itself. */
const innerPath = ({ path }: TarHeader): BytePath =>
  path.slice(path.indexOf('/') + 1 || path.length)
