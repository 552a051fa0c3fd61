/** `npm run quickstart`: sets up a bare clone, then runs the sample benchmark (runner/quickstart.ts). */
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { root, setUp } from './setup.mjs'

const started = Date.now()
try {
  const node = setUp((what) => process.stderr.write(`· installing ${what}\n`))
  const script = path.join(root, 'runner', 'quickstart.ts')
  const args = ['--no-warnings', script, ...process.argv.slice(2)]
  const env = { ...process.env, CLOSEDBOOK_QUICKSTART_STARTED: String(started) }
  const { status } = spawnSync(node, args, { stdio: 'inherit', env })
  process.exit(status ?? 1)
} catch (error) {
  process.stderr.write(`quickstart: ${error.message}\n`)
  process.exit(1)
}
