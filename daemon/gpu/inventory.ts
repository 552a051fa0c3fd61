/**
 * What nvidia-smi says about the GPUs of this host, parsed strictly: a line that isn't as it must be is a fault, never
 * a guess. Nothing here changes a GPU. When one GPU spoils the answer for all, each known one is asked on its own, so
 * that the fault stays with the GPU that has it.
 */
import { GpuFault } from './gpu-fault.ts'
import type { Smi } from './smi.ts'

export interface GpuReading {
  readonly uuid: string
  readonly name: string
  /** `domain:bus:device.function`, lower case, with a domain of four digits: as the kernel log has it. */
  readonly busId: string
  readonly driver: string
  readonly memoryBytes: number
  readonly memoryUsedBytes: number
  /** null where the GPU has none of it. */
  readonly mig: 'on' | 'off' | null
  readonly eccUncorrected: number | null
  readonly computeMode: string
  readonly remap: { readonly pending: boolean; readonly failed: boolean } | null
  /** Host pids that compute on it. */
  readonly pids: readonly number[]
}

export interface Inventory {
  readonly gpus: readonly GpuReading[]
  /** Known GPUs that could not be read. */
  readonly faults: ReadonlyMap<string, GpuFault>
}

const gpuFields = [
  'uuid',
  'name',
  'pci.bus_id',
  'driver_version',
  'memory.total',
  'memory.used',
  'mig.mode.current',
  'ecc.errors.uncorrected.volatile.total',
  'compute_mode',
] as const
const remapFields = ['gpu_uuid', 'remapped_rows.pending', 'remapped_rows.failure'] as const
const appFields = ['gpu_uuid', 'pid'] as const
const format = '--format=csv,noheader,nounits'

/** `known`: GPUs that must be there. Throws GpuFault when nothing at all could be learned. */
export async function takeInventory(smi: Smi, known: readonly string[]): Promise<Inventory> {
  try {
    const gpus = await read(smi, [])
    const seen = new Set(gpus.map(({ uuid }) => uuid))
    const gone = known.filter((uuid) => !seen.has(uuid))
    return { gpus, faults: new Map(gone.map((uuid) => [uuid, missing])) }
  } catch (error) {
    if (!(error instanceof GpuFault) || known.length === 0) throw error
    const gpus: GpuReading[] = []
    const faults = new Map<string, GpuFault>()
    // Side by side: each that hangs takes the whole time limit.
    await Promise.all(
      known.map(async (uuid) => {
        try {
          const [gpu] = await read(smi, ['-i', uuid])
          if (gpu?.uuid === uuid) gpus.push(gpu)
          else faults.set(uuid, missing)
        } catch (fault) {
          if (!(fault instanceof GpuFault)) throw fault
          faults.set(uuid, fault)
        }
      }),
    )
    return { gpus, faults }
  }
}

const missing = new GpuFault('failed', 'nvidia-smi no longer lists it')

async function read(smi: Smi, which: readonly string[]): Promise<GpuReading[]> {
  const query = (what: string, fields: readonly string[]): Promise<string> =>
    smi.ask([...which, `--query-${what}=${fields.join(',')}`, format])
  const answers = await Promise.allSettled([
    query('gpu', gpuFields),
    query('remapped-rows', remapFields).catch(unknownQuery),
    query('compute-apps', appFields),
  ])
  const [gpu, remap, apps] = answers.map((answer) => {
    if (answer.status === 'rejected') throw answer.reason
    return answer.value
  })
  const remaps = new Map(parseRemaps(remap ?? ''))
  const holders = parseApps(apps ?? '')
  return parseGpus(gpu ?? '').map((found) => ({
    ...found,
    remap: remaps.get(found.uuid) ?? null,
    pids: holders.filter(([uuid]) => uuid === found.uuid).map(([, pid]) => pid),
  }))
}

/** Drivers from before there was row remapping don't know the question. */
function unknownQuery(error: unknown): string {
  if (
    error instanceof GpuFault &&
    /unrecogni[sz]ed|not a valid|invalid option/i.test(error.message)
  )
    return ''
  throw error
}

export function parseGpus(text: string): Omit<GpuReading, 'remap' | 'pids'>[] {
  return rows(text, gpuFields).map((row) => ({
    uuid: uuidOf(row['uuid']),
    name: required(row['name'], 'name'),
    busId: busIdOf(row['pci.bus_id']),
    driver: required(row['driver_version'], 'driver_version'),
    memoryBytes: mebibytes(row['memory.total'], 'memory.total'),
    memoryUsedBytes: mebibytes(row['memory.used'], 'memory.used'),
    mig: switchOf(row['mig.mode.current']),
    eccUncorrected: optionalCount(row['ecc.errors.uncorrected.volatile.total'], 'uncorrected ECC'),
    computeMode: required(row['compute_mode'], 'compute_mode'),
  }))
}

export function parseRemaps(text: string): [string, NonNullable<GpuReading['remap']>][] {
  return rows(text, remapFields).flatMap((row) => {
    const pending = flag(row['remapped_rows.pending'])
    const failed = flag(row['remapped_rows.failure'])
    return pending === null || failed === null
      ? []
      : [[uuidOf(row['gpu_uuid']), { pending, failed }]]
  })
}

export function parseApps(text: string): [uuid: string, pid: number][] {
  return rows(text, appFields).map((row) => [
    uuidOf(row['gpu_uuid']),
    count(row['pid'], 'pid of a compute process'),
  ])
}

function rows<F extends string>(text: string, fields: readonly F[]): Partial<Record<F, string>>[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && line !== 'No devices were found')
    .map((line) => {
      const values = line.split(',').map((value) => value.trim())
      if (values.length !== fields.length)
        throw unreadable(`${values.length} values instead of ${fields.length} in "${line}"`)
      return Object.fromEntries(
        fields.map((field, index) => [field, values[index] ?? '']),
      ) as Partial<Record<F, string>>
    })
}

const unreadable = (what: string): GpuFault =>
  new GpuFault('unreadable', `nvidia-smi gave an answer that can't be read: ${what.slice(0, 200)}`)

const absent = /^\[?(?:N\/A|Not Supported)\]?$/i

function required(value: string | undefined, what: string): string {
  if (value === undefined || value === '' || value.startsWith('['))
    throw unreadable(`${what} is "${value}"`)
  return value
}

function uuidOf(value: string | undefined): string {
  if (value === undefined || !/^GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(value))
    throw unreadable(`"${value}" is no UUID of a GPU`)
  return value
}

function busIdOf(value: string | undefined): string {
  const found = /^[0-9a-f]{0,4}([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$/i.exec(value ?? '')
  if (found?.[1] === undefined) throw unreadable(`"${value}" is no PCI address`)
  return found[1].toLowerCase()
}

function count(value: string | undefined, what: string): number {
  if (value === undefined || !/^\d{1,15}$/.test(value)) throw unreadable(`${what} is "${value}"`)
  return Number(value)
}

const mebibytes = (value: string | undefined, what: string): number =>
  count(value, what) * 1024 ** 2

const optionalCount = (value: string | undefined, what: string): number | null =>
  value !== undefined && absent.test(value) ? null : count(value, what)

function switchOf(value: string | undefined): 'on' | 'off' | null {
  if (value === 'Enabled') return 'on'
  if (value === 'Disabled') return 'off'
  if (value !== undefined && absent.test(value)) return null
  throw unreadable(`the MIG mode is "${value}"`)
}

function flag(value: string | undefined): boolean | null {
  if (value !== undefined && absent.test(value)) return null
  if (value === 'Yes' || value === 'No') return value === 'Yes'
  const number = count(value, 'a flag of the remapped rows')
  if (number > 1) throw unreadable(`a flag of the remapped rows is "${value}"`)
  return number === 1
}
