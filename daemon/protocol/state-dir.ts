/** Where daemon and runner meet when nobody says otherwise: both must come to the same directory. */
import os from 'node:os'
import path from 'node:path'

/** CLOSEDBOOK_STATE_DIR, else `/var/lib/closedbook` for root, else the user's own state directory. */
export function defaultStateDir(env: NodeJS.ProcessEnv, uid = process.getuid?.()): string {
  const named = env['CLOSEDBOOK_STATE_DIR']
  if (named !== undefined && named !== '') return path.resolve(named)
  if (uid === 0) return '/var/lib/closedbook'
  const home = env['HOME'] ?? os.homedir()
  return path.join(env['XDG_STATE_HOME'] ?? path.join(home, '.local/state'), 'closedbook')
}
