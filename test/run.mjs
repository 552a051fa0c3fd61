/** `npm test`: sets up a bare clone, then runs every check and every rung of tests (test/run.ts). */
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { root, setUp } from '../runner/bin/setup.mjs'

try {
  const node = setUp((what) => process.stderr.write(`· installing ${what}\n`), { browser: true })
  const args = ['--no-warnings', path.join(root, 'test', 'run.ts'), ...process.argv.slice(2)]
  const bin = path.join(root, 'node_modules', '.bin')
  const env = { ...process.env, PATH: `${bin}:${process.env.PATH ?? ''}` }
  const { status } = spawnSync(node, args, { stdio: 'inherit', env, cwd: root })
  process.exit(status ?? 1)
} catch (error) {
  process.stderr.write(`test: ${error.message}\n`)
  process.stdout.write('0 passed, 1 failed\n')
  process.exit(1)
}
