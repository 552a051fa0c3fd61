/** What the model gateway of a trial's lease is told: the configuration's model, its key or its recording, its budget. */
import { readFile } from 'node:fs/promises'
import type { LeaseRequestInput } from '../../daemon/protocol/lease.ts'
import { gatewayBudget, readKey, type ModelSettings } from '../job/configuration.ts'
import { recordingPath } from '../job/recordings.ts'
import { packFiles } from './bundle.ts'
import type { ExecutionContext } from './context.ts'

export async function modelGateway(
  { client, configuration, task, run, signal }: ExecutionContext,
  model: ModelSettings,
): Promise<NonNullable<LeaseRequestInput['model']>> {
  const { upstream } = model
  return {
    upstream:
      upstream.kind !== 'replay'
        ? { kind: upstream.kind, baseUrl: upstream.baseUrl, apiKey: await readKey(upstream.key) }
        : {
            kind: 'replay',
            bundle: await client.putBundle(
              await packFiles({
                'recording.jsonl': await readFile(
                  await recordingPath(upstream.recordings, task.name, run),
                ),
              }),
              { signal },
            ),
            path: 'recording.jsonl',
          },
    model: model.name,
    parameters: model.parameters,
    price: model.price,
    budget: gatewayBudget(model, configuration.limits),
    upstreamTimeoutMs: model.timeoutSeconds * 1000,
  }
}
