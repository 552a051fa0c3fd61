/** What the tests of recovery share: runs that can be killed, the moments to kill them at, and what may not be left. */
import type { ChildProcess } from 'node:child_process'
import { readdirSync, readFileSync, watch } from 'node:fs'
import path from 'node:path'
import type { Test } from 'tap'
import { ownLabel } from '../../../runner/step-log.ts'
import type { TestDaemon, CliResult } from '../../support/daemon.ts'
import type { TestEngine } from '../../support/engine.ts'
import {
  containersOf,
  descendantsOf,
  openLeases,
  stillAlive,
  until,
  type OpenLease,
} from '../trials/setup.ts'

export interface Running {
  readonly child: ChildProcess
  readonly ended: Promise<CliResult>
}

/** Starts a command of the runner and does not wait for its end. */
export function start(daemon: TestDaemon, args: readonly string[], timeoutMs = 240_000): Running {
  const spawned: ChildProcess[] = []
  const ended = daemon.cli(args, { timeoutMs, onSpawn: (child) => spawned.push(child) })
  const [child] = spawned
  if (child === undefined) throw new Error('nothing was spawned')
  return { child, ended }
}

/** A script that says when it has begun and ends when the test lets it. */
export const waiting = 'touch /begun\nuntil test -e /go; do sleep 0.05; done\n'

/** The lease in which `waiting` has begun, and that is not one of those. */
export const begun = (daemon: TestDaemon, before: readonly string[] = []): Promise<OpenLease> =>
  until('the script has begun', async () => {
    for (const open of await openLeases(daemon.stateDir)) {
      if (open.state !== 'ready' || open.network !== 'sealed') continue
      if (before.includes(open.lease)) continue
      const found = await daemon.client.readArchive(open.lease, '/begun').then(
        ({ tar }) => tar.destroy(),
        () => null,
      )
      if (found !== null) return open
    }
    return null
  })

/** Lets `waiting` end. */
export const letGo = async (daemon: TestDaemon, lease: string): Promise<void> => {
  // Labelled as the runner's own: else it would be a person's, and the trial assisted.
  await daemon.client.exec(lease, { argv: ['touch', '/go'], label: `${ownLabel}test` })
}

export interface JournalLease {
  readonly lease: string
  readonly state: string
  readonly request: { readonly network: string; readonly mounts: readonly unknown[] }
}

/** Calls `then` in the moment in which the journal has such a lease. */
export async function whenLease(
  daemon: TestDaemon,
  is: (lease: JournalLease) => boolean,
  then: () => void,
): Promise<void> {
  const directory = path.join(daemon.stateDir, 'leases', 'open')
  const found = (): boolean =>
    readdirSync(directory).some((name) => {
      try {
        return is(JSON.parse(readFileSync(path.join(directory, name), 'utf8')) as JournalLease)
      } catch {
        return false
      }
    })
  await new Promise<void>((resolve, reject) => {
    const limit = setTimeout(() => {
      watcher.close()
      reject(new Error('the journal never had such a lease'))
    }, 90_000)
    const look = (): void => {
      if (!found()) return
      then()
      clearTimeout(limit)
      watcher.close()
      resolve()
    }
    const watcher = watch(directory, look)
    look()
  })
}

/** Nothing moves from here on, so that what there is can be counted. */
export const halt = (pids: readonly number[]): void => {
  for (const pid of pids) process.kill(pid, 'SIGSTOP')
}

/** `kill -9` of both at the same moment; resolves when their helpers are gone too. */
export async function killBoth(daemon: TestDaemon, { child, ended }: Running): Promise<CliResult> {
  const pids = [daemon.pid, child.pid ?? 0]
  halt(pids)
  const helpers = await descendantsOf(pids)
  child.kill('SIGKILL')
  await daemon.kill()
  const end = await ended
  await until('helpers end with the one they serve', async () => {
    return (await stillAlive(helpers)).length === 0
  })
  return end
}

/** No container, open journal record or helper process of this daemon is left. */
export async function nothingLeft(
  t: Test,
  daemon: TestDaemon,
  { engine }: TestEngine,
): Promise<void> {
  t.strictSame(await containersOf(daemon, engine), [], 'no container is left')
  t.strictSame(await openLeases(daemon.stateDir), [], 'no lease is left')
  t.strictSame(await daemon.client.leases(), [], 'the daemon has none either')
  await until('no helper is left', async () => {
    const helpers = await descendantsOf([daemon.pid])
    return helpers.every(({ pid }) => stays(pid))
  })
}

/** The host of terminals, and the shell that counts what is on disk, stay while their daemon does. */
function stays(pid: number): boolean {
  try {
    return /pty-host|du -sx/.test(readFileSync(`/proc/${pid}/cmdline`, 'utf8'))
  } catch {
    return true // it has ended meanwhile
  }
}
