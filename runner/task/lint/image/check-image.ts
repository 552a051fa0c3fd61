/**
 * Looks into a task's image. Its layers are read as the engine saves them, its files through the engine's archive of an
 * offline container, its git objects by a git of our own image: nothing of the image is trusted, and what is run of it
 * (its shell, to hear whether it is quiet) runs in a container that is thrown away.
 */
import { randomBytes } from 'node:crypto'
import { isPathMissing } from '../../../trial/engine-answer.ts'
import { HeldLease } from '../../../trial/held-lease.ts'
import { showPath } from '../../../trial/path-name.ts'
import { blobId, readTree, type Tree } from '../../../trial/tree.ts'
import { readFileOut } from '../../../trial/read-file.ts'
import { RunnerError } from '../../../errors.ts'
import { buildOurImages, taskImageId, withSavedImage } from '../../../host/images.ts'
import type { TaskImageFacts } from '../../lenient.ts'
import type { TaskDirectory } from '../directory.ts'
import type { Findings } from '../finding.ts'
import { checkContent } from './check-content.ts'
import { checkGit, type WorkRepository } from './check-git.ts'
import { checkInstructionPaths } from './check-instruction.ts'
import { checkImageSettings } from './check-settings.ts'
import { checkShells } from './check-shell.ts'
import { fingerprint } from './fingerprint.ts'
import type { ImageAccess } from './image-access.ts'
import { LayerScan } from './layer-scan.ts'
import { readSavedImage } from './saved-image.ts'

const maxShownFile = 8 * 1024 * 1024
const treeLimits = { maxEntries: 5_000_000, maxBytes: 256 * 1024 ** 3 }

/** The id of the image that was looked into. */
export async function checkImage(
  findings: Findings,
  task: TaskImageFacts,
  directory: TaskDirectory,
  access: ImageAccess,
): Promise<string> {
  const { client, signal } = access
  const id = await taskImageId(task, access)
  const facts = await client.inspectImage(id, { signal })
  const workdir = trimmed(task.workdir ?? (facts.workdir === '' ? '/' : facts.workdir))
  const prints = await fingerprint(directory)
  access.say(`reading the layers of ${id.slice(0, 19)}`)
  const scan = new LayerScan(prints)
  const saved = await withSavedImage(id, access, (tar) =>
    readSavedImage(tar, (entry) => scan.visit(entry)),
  )
  checkImageSettings(findings, saved.config)

  const { base: trustedImage } = await buildOurImages(['base'], access)
  await using image = await openOffline(access, id)
  await using trusted = await openOffline(access, trustedImage.id)
  const work = await checkGit({ findings, task, workdir, scan, prints, image, trusted, signal })
  const tree = await workTree(image, work?.root ?? workdir, signal)
  if (work !== null && tree !== null) checkDirty(findings, work, tree)

  const place = placeOf(image, saved.layers, signal)
  const base = work === null ? null : new Set([...work.tree.values()].map(({ blob }) => blob))
  await checkContent({ findings, prints, scan, base, place })
  await reportSightings(findings, scan, place)
  for (const { path, why } of scan.uninspected.slice(0, 20))
    findings.add('not-inspected', `image:/${path}`, `could not be looked into: ${why}`)
  await checkInstructionPaths({
    findings,
    text: task.instruction,
    sandbox: image,
    paths: [...(tree?.entries.keys() ?? [])].map(
      (path) => `${work?.root ?? workdir}/${showPath(path)}`,
    ),
    signal,
  })
  await checkShells(findings, image, signal)
  return id
}

const openOffline = ({ client, signal }: ImageAccess, image: string): Promise<HeldLease> =>
  HeldLease.open(
    client,
    {
      id: randomBytes(10).toString('hex'),
      image,
      network: 'offline',
      owner: 'lint',
      resources: { cpus: 1, memoryBytes: 2 * 1024 ** 3, diskBytes: 64 * 1024 ** 3 },
    },
    { signal },
  )

const trimmed = (path: string): string => path.replace(/^\/+|\/+$/g, '')

/** null where workdir is no directory, or the root itself. */
async function workTree(image: HeldLease, root: string, signal: AbortSignal): Promise<Tree | null> {
  if (root === '') return null
  try {
    const reading = await readTree(image, `/${root}`, treeLimits, { signal })
    return reading.ok ? reading.tree : null
  } catch (error) {
    if (isPathMissing(error)) return null
    throw error
  }
}

function checkDirty(findings: Findings, { root, tree }: WorkRepository, shown: Tree): void {
  const differing: string[] = []
  for (const [path, { blob, mode }] of tree) {
    const entry = shown.entries.get(path)
    if (entry === undefined) differing.push(`${showPath(path)} (missing)`)
    else if (entry.blob !== blob || entry.mode !== mode) differing.push(showPath(path))
  }
  // Line ends, LFS and the like make every file differ from its object, as they should.
  const filtered = [...tree.keys()].some((path) => /(?:^|\/)\.gitattributes$/.test(path))
  if (differing.length === 0 || (filtered && differing.length > tree.size / 2)) return
  const more = differing.length > 3 ? ` and ${differing.length - 3} more` : ''
  findings.add(
    'git-dirty',
    `image:/${root}`,
    `${differing.slice(0, 3).join(', ')}${more} differ from the base commit: commit them, so that the agent's \`git diff\` shows its own work alone`,
  )
}

type Place = (layer: string, path: string, blob: string | null) => Promise<string>

/** Which layer, and whether the image still shows the file. `blob` null: any file there counts as the same. */
function placeOf(image: HeldLease, layers: readonly string[], signal: AbortSignal): Place {
  return async (layer, path, blob) => {
    const number = layers.indexOf(layer) + 1
    const where = number === 0 ? 'a layer' : `layer ${number} of ${layers.length}`
    const file = `/${path.split('!')[0]}`
    try {
      const bytes = await readFileOut(image, file, maxShownFile, signal)
      if (bytes === null) return `${where}; a later layer removed it`
      const inside = path.includes('!')
      if (!inside && blob !== null && blob !== '' && blobId(bytes) !== blob)
        return `${where}; a later layer changed it`
      return where
    } catch (error) {
      // Too large to be read again.
      if (error instanceof RunnerError) return where
      throw error
    }
  }
}

async function reportSightings(findings: Findings, scan: LayerScan, place: Place): Promise<void> {
  for (const { layer, path, line, what, kind } of scan.sightings) {
    const where = await place(layer, path, null)
    if (kind === 'secret')
      findings.add(
        'baked-secret',
        `image:/${path}`,
        `${what} (${where}): keep it out of every layer, and revoke it if it was real`,
        line,
      )
    else if (!where.includes('removed'))
      findings.add(
        'baked-proxy',
        `image:/${path}`,
        `sets a proxy of the build host (${where}): the sandbox has no such host; take it away`,
        line,
      )
  }
}
