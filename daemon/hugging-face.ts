/** What all leases share of Hugging Face, from the configuration: the way to the Hub, and the cache of its artifacts. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { DaemonConfig } from './config.ts'
import { HostError } from './errors.ts'
import { ArtifactCache } from './gateway/artifact-cache/artifact-cache.ts'
import { Hub } from './gateway/hugging-face/hub.ts'
import type { LeaseDeps } from './lease/lease-deps.ts'

export async function openHuggingFaceParts(
  { stateDir, huggingface }: DaemonConfig,
  owned: AsyncDisposableStack,
): Promise<LeaseDeps['huggingFace']> {
  const { endpoint, tokenFile, fileHosts, cache } = huggingface
  const directory = path.resolve(cache.dir ?? path.join(stateDir, 'artifacts'))
  const artifacts = owned.use(await ArtifactCache.open({ directory, maxBytes: cache.maxBytes }))
  const hub = owned.use(
    await Hub.open({
      endpoint,
      fileHosts,
      directory: path.join(directory, 'trees'),
      ...(tokenFile === undefined ? {} : { token: await readToken(tokenFile) }),
    }),
  )
  return { hub, cache: artifacts }
}

async function readToken(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new HostError(
      'config_invalid',
      'operator',
      `huggingface.tokenFile ${file} can't be read: ${(error as Error).message}`,
      { cause: error },
    )
  })
  const token = text.trim()
  if (/^[\x21-\x7e]{1,512}$/.test(token)) return token
  throw new HostError(
    'config_invalid',
    'operator',
    `huggingface.tokenFile ${file} must hold one token and nothing else`,
  )
}
