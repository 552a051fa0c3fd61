/** `npm test`: sets up a bare clone, then runs every check and every rung of tests (test/run.ts). */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { root, setUp } from '../runner/bin/setup.mjs'

try {
  const node = setUp((what) => process.stderr.write(`· installing ${what}\n`), { browser: true })
  const args = ['--no-warnings', path.join(root, 'test', 'run.ts'), ...process.argv.slice(2)]
  const bin = path.join(root, 'node_modules', '.bin')
  const env = { ...process.env, PATH: `${bin}:${process.env.PATH ?? ''}` }
  const child = spawn(node, args, { stdio: 'inherit', env, cwd: root })
  // It stops what it started, and then ends.
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(name, () => child.kill(name))
  const [status] = await once(child, 'exit')
  process.exit(status ?? 1)
} catch (error) {
  process.stderr.write(`test: ${error.message}\n`)
  process.stdout.write('0 passed, 1 failed\n')
  process.exit(1)
}
