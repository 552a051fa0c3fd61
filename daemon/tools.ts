/**
 * The two static programs of the host that every sandbox gets, read-only: the idle init that is its PID 1, and the
 * busybox that runs our canaries in any image. Looked for in <state dir>/tools, then where Debian installs them.
 */
import { access, constants } from 'node:fs/promises'
import path from 'node:path'
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
