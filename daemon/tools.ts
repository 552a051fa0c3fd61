/**
 * The two static programs of the host that every sandbox gets, read-only: the idle init that is its PID 1, and the
 * busybox that runs our canaries in any image. Looked for in <state dir>/tools, then where Debian installs them.
 */
import { execFile } from 'node:child_process'
import { access, constants } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import type { DaemonConfig } from './config.ts'
import { HostError } from './errors.ts'

export async function findTools(
  stateDir: string,
): Promise<{ initPath: string; busyboxPath: string }> {
  return {
    initPath: await find('catatonit', [
      path.join(stateDir, 'tools', 'catatonit'),
      '/usr/bin/catatonit',
    ]),
    busyboxPath: await find('busybox-static', [
      path.join(stateDir, 'tools', 'busybox'),
      '/bin/busybox',
      '/usr/bin/busybox',
    ]),
  }
}

const versionMs = 10_000

/** The command line that terminals go through, tried once; null: they don't. */
export async function engineCommandOf(
  { backend, command }: DaemonConfig['pty'],
  engineSocket: string,
): Promise<readonly string[] | null> {
  if (backend === 'api') return null
  const argv = command ?? ['docker', '-H', `unix://${engineSocket}`]
  const [file = '', ...args] = argv
  await promisify(execFile)(file, [...args, 'version'], { timeout: versionMs }).catch(
    (error: unknown) => {
      throw new HostError(
        'tool_missing',
        'operator',
        `pty.backend is cli, but \`${argv.join(' ')} version\` failed: ${error instanceof Error ? error.message.trim() : String(error)}; install the engine's command line, correct pty.command, or take the api backend`,
        { cause: error },
      )
    },
  )
  return argv
}

async function find(name: string, places: readonly string[]): Promise<string> {
  for (const place of places)
    if (
      await access(place, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return place
  throw new HostError(
    'tool_missing',
    'operator',
    `${name} is neither in ${places.join(' nor in ')}; \`closedbook up\` brings it on Debian, ` +
      `or put a static build there`,
  )
}
