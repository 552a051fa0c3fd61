/** A folder as a bundle of the daemon: what a task's image would have installed, for a test that mounts it. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { DaemonClient } from '../../daemon/protocol/client.ts'

/** `without`: patterns of names that are left out, beside what Python compiled. */
export async function bundleOf(
  folder: string,
  client: DaemonClient,
  without: readonly string[] = [],
): Promise<string> {
  const left = ['__pycache__', ...without].map((pattern) => `--exclude=${pattern}`)
  const { stdout } = await promisify(execFile)('tar', ['-C', folder, ...left, '-c', '.'], {
    encoding: 'buffer',
    maxBuffer: 256 * 1024 ** 2,
  })
  return client.putBundle(stdout)
}
