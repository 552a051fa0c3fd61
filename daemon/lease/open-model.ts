/** The model gateway of a lease, for a new one and for one that was adopted; keys are kept nowhere, so it is told again. */
import { readFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import path from 'node:path'
import { LeaseError, RequestError } from '../errors.ts'
import { ModelGateway } from '../gateway/model.ts'
import type { LeaseRequest, ModelGatewaySpec } from '../protocol/lease.ts'
import { recordedCallSchema, type RecordedCall } from '../protocol/recording.ts'
import type { LeaseDeps } from './lease-deps.ts'
import type { Lease } from './lease.ts'
import { readPastCalls } from './past-calls.ts'

/** Until the model is told again a client is refused, and tries once more. */
export const closeAtOnce = (socket: Socket): void => void socket.destroy()

/** For a new lease, or for one whose last gateway ended with its daemon: that one's meter is gone on with. */
export async function openModel(
  lease: Lease,
  spec: ModelGatewaySpec,
  deps: LeaseDeps,
): Promise<void> {
  const { parts } = lease
  const server = parts.modelListener
  if (server === null || parts.model !== null)
    throw new LeaseError(
      'lease_wrong_state',
      'caller',
      `lease ${lease.id} ${server === null ? 'was opened without a model' : 'has its model gateway'}`,
    )
  const exchangesFile = path.join(deps.directories.exchanges, `${lease.id}.jsonl`)
  const gateway = await ModelGateway.open(spec, {
    server,
    audit: parts.audit,
    replay: await readRecording(spec, deps),
    past: lease.state === 'sealing' ? null : await readPastCalls(parts.events, exchangesFile),
    exchangesFile,
    onCall: (event) => parts.events.append(event),
    signal: lease.ended,
  })
  server.removeListener('connection', closeAtOnce)
  parts.model = lease.owned.use(gateway)
}

async function readRecording(
  spec: NonNullable<LeaseRequest['model']>,
  deps: LeaseDeps,
): Promise<RecordedCall[] | null> {
  const { upstream } = spec
  if (upstream.kind !== 'replay') return null
  const root = deps.bundles.pathOf(upstream.bundle)
  const file = path.resolve(root, `./${upstream.path}`)
  const wrong = (why: string): RequestError =>
    new RequestError(
      'bad_request',
      'caller',
      `recording ${upstream.path} of bundle ${upstream.bundle.slice(0, 12)} ${why}`,
    )
  if (!file.startsWith(`${root}${path.sep}`)) throw wrong('lies outside the bundle')
  const text = await readFile(file, 'utf8').catch(() => {
    throw wrong('does not exist')
  })
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line, index) => {
      try {
        return recordedCallSchema.parse(JSON.parse(line))
      } catch (error) {
        throw wrong(`has a bad line ${index + 1}: ${(error as Error).message}`)
      }
    })
}
