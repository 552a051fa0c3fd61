/** Compose files: what their services may do to the host. The runner refuses such tasks; other runners may not. */
import { posix } from 'node:path'
import { parse } from 'yaml'
import { messageOf } from '../../errors.ts'
import type { TaskDirectory } from './directory.ts'
import { isPinned } from './dockerfile-rules.ts'
import type { Findings } from './finding.ts'
import { tableAt } from './selection.ts'

export const composeNames = [
  'docker-compose.yaml',
  'docker-compose.yml',
  'compose.yaml',
  'compose.yml',
]

export function checkCompose(
  findings: Findings,
  file: string,
  text: string,
  directory: TaskDirectory,
): void {
  let value: unknown
  try {
    value = parse(text)
  } catch (error) {
    findings.add('invalid-task-config', file, `not valid YAML: ${messageOf(error).split('\n')[0]}`)
    return
  }
  const lines = text.split('\n')
  const lineOf = (word: string): number | null => {
    const index = lines.findIndex((line) => line.includes(word))
    return index === -1 ? null : index + 1
  }
  const binds = localBinds(tableAt(value, ['volumes']))
  const services = tableAt(value, ['services']) ?? {}
  const built = new Set(
    Object.values(services).flatMap((service) => {
      const table = tableAt(service, [])
      return table?.['build'] !== undefined && typeof table['image'] === 'string'
        ? [table['image']]
        : []
    }),
  )
  for (const [name, service] of Object.entries(services)) {
    const table = tableAt(service, [])
    if (table === undefined) continue
    const image = table['image']
    if (typeof image === 'string' && !built.has(image) && !image.includes('$') && !isPinned(image))
      findings.add(
        'unpinned-image',
        file,
        `services.${name}.image: "${image}": a tag moves; write name@sha256:…`,
        lineOf(image),
      )
    const hooks = ['post_start', 'pre_stop'].flatMap((hook) => listOf(table[hook]))
    if ([table, ...hooks].some((one) => tableAt(one, [])?.['privileged'] === true))
      findings.add(
        'compose-privileged',
        file,
        `services.${name} is privileged, which is root on the host: take it away`,
        lineOf('privileged'),
      )
    if (listOf(table['cap_add']).length > 0)
      findings.add(
        'compose-additional-capabilities',
        file,
        `services.${name} asks for ${listOf(table['cap_add']).join(', ')}: see whether it is needed`,
        lineOf('cap_add'),
      )
    for (const volume of listOf(table['volumes'])) {
      const mount = mountOf(volume, binds)
      if (mount !== null) checkMount(findings, file, name, mount, directory, lineOf(mount.source))
    }
  }
}

interface Mount {
  readonly source: string
  readonly readOnly: boolean
}

function checkMount(
  findings: Findings,
  file: string,
  service: string,
  { source, readOnly }: Mount,
  { files }: TaskDirectory,
  line: number | null,
): void {
  if (!readOnly)
    findings.add(
      'compose-writable-bind-mount',
      file,
      `services.${service} may write to ${source} of the host: mount it read-only, or use a volume`,
      line,
    )
  const inTask = posix.normalize(posix.join(posix.dirname(file), source))
  const outside =
    source.startsWith('/') ||
    source.startsWith('~') ||
    source.includes('$') ||
    inTask.startsWith('..')
  if (outside)
    findings.add(
      'compose-external-bind-mount',
      file,
      `services.${service} mounts ${source}, which is not part of the task: bring what it needs in the image`,
      line,
    )
  else if (
    files.some(({ path, kind }) => kind === 'symlink' && `${inTask}/`.startsWith(`${path}/`))
  )
    findings.add(
      'compose-symlink-bind-mount',
      file,
      `services.${service} mounts ${source} through a link: replace the link by what it points at`,
      line,
    )
}

function mountOf(volume: unknown, binds: ReadonlyMap<string, Mount>): Mount | null {
  if (typeof volume === 'string') {
    const [source = '', , mode = ''] = volume.split(':')
    if (!volume.includes(':')) return null
    const readOnly = mode.split(',').includes('ro')
    if (/^[./~$]/.test(source)) return { source, readOnly }
    const named = binds.get(source)
    return named === undefined ? null : { ...named, readOnly: readOnly || named.readOnly }
  }
  const table = tableAt(volume, [])
  const source = table?.['source']
  if (table === undefined || typeof source !== 'string') return null
  const readOnly = table['read_only'] === true
  if (table['type'] === 'bind') return { source, readOnly }
  const named = binds.get(source)
  return named === undefined ? null : { ...named, readOnly: readOnly || named.readOnly }
}

/** Named volumes of the local driver that are bind mounts in disguise. */
function localBinds(volumes: Readonly<Record<string, unknown>> | undefined): Map<string, Mount> {
  const found = new Map<string, Mount>()
  for (const [name, volume] of Object.entries(volumes ?? {})) {
    const options = tableAt(volume, ['driver_opts'])
    const option = options?.['o']
    const flags = typeof option === 'string' ? option.split(',') : []
    const device = options?.['device']
    if (typeof device === 'string' && flags.some((flag) => /^r?bind$/.test(flag)))
      found.set(name, { source: device, readOnly: flags.includes('ro') })
  }
  return found
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])
