/**
 * What a container changed in its file system, as the engine tells it. The answer grows with what was written inside,
 * so it is read under a cap: past it nobody can say, and that is the doing of whoever wrote so many files.
 */
import type { IncomingMessage } from 'node:http'
import type Docker from 'dockerode'
import { z } from 'zod'
import { EngineError } from '../errors.ts'
import { ask, endOnAbort } from './driver-error.ts'
import type { FileChange } from './engine.ts'

const maxAnswerBytes = 64 * 1024 * 1024
const answerSchema = z.array(z.object({ Path: z.string(), Kind: z.int() })).nullable()
const kinds = ['modified', 'added', 'deleted'] as const

export async function readChanges(
  { docker, socketPath }: { readonly docker: Docker; readonly socketPath: string },
  containerId: string,
  signal?: AbortSignal,
): Promise<readonly FileChange[]> {
  const what = { action: 'list what changed', container: containerId, socketPath }
  return ask(what, { signal }, async (abortSignal) => {
    const response = endOnAbort(await request(docker, containerId, abortSignal), abortSignal)
    const parts: Buffer[] = []
    let size = 0
    for await (const part of response as AsyncIterable<Buffer>) {
      parts.push(part)
      size += part.length
      if (size > maxAnswerBytes) {
        response.destroy()
        throw new EngineError(
          'engine_refused',
          'agent',
          `The list of changed files is longer than ${maxAnswerBytes} bytes.`,
        )
      }
    }
    const changes = answerSchema.parse(JSON.parse(Buffer.concat(parts).toString('utf8'))) ?? []
    return changes.map(({ Path: path, Kind }) => ({ path, kind: kinds[Kind] ?? 'modified' }))
  })
}

/** The driver's own method would hold the whole answer, however long. */
const request = (docker: Docker, id: string, abortSignal: AbortSignal): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const options = {
      path: `/containers/${id}/changes`,
      method: 'GET',
      isStream: true,
      abortSignal,
      statusCodes: { 200: true, 404: 'no such container', 500: 'server error' },
    }
    docker.modem.dial(options, (error: unknown, answer: unknown) => {
      if (error instanceof Error) reject(error)
      else resolve(answer as IncomingMessage)
    })
  })
