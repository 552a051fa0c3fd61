/** Which daemon the runner's settings mean. */
import { readFile } from 'node:fs/promises'
import type { DaemonTarget } from '../daemon/protocol/target.ts'
import type { RunnerConfig } from './config.ts'
import { messageOf, RunnerError } from './errors.ts'

export async function targetOf(
  config: Pick<RunnerConfig, 'socket' | 'url' | 'token' | 'ca'>,
): Promise<DaemonTarget> {
  const { socket, url, token, ca } = config
  if (url === undefined) return { socketPath: socket }
  if (token === undefined)
    throw new RunnerError(
      'config_invalid',
      'operator',
      `${url} needs a token: set CLOSEDBOOK_TOKEN to one that \`closedbook token create\` made there`,
    )
  if (ca === undefined) return { url, token }
  const certificates = await readFile(ca, 'utf8').catch((error: unknown) => {
    throw new RunnerError('config_invalid', 'operator', `can't read ${ca}: ${messageOf(error)}`)
  })
  return { url, token, ca: certificates }
}
