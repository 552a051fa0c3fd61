#!/usr/bin/env node
/** Starts the daemon under Node 24, whatever Node started this. */
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import module from 'node:module'
import { fileURLToPath } from 'node:url'
import { nodeFlags } from './node-flags.mjs'

const main = fileURLToPath(new URL('../main.ts', import.meta.url))
if (Number(process.versions.node.split('.')[0]) >= 24) {
  const flags = nodeFlags().filter((flag) => !process.execArgv.includes(flag))
  // The same process goes on, with its pid and its streams. A channel to a parent wouldn't outlive it.
  if (flags.length > 0 && process.send === undefined) {
    const argv = [...flags, '--no-warnings', ...process.execArgv, ...process.argv.slice(1)]
    process.execve(process.execPath, [process.execPath, ...argv], process.env)
  }
  // Halves the start: types are stripped and modules compiled once. Not in /tmp, where others could have put it.
  module.enableCompileCache?.(
    fileURLToPath(new URL('../../node_modules/.cache/closedbook', import.meta.url)),
  )
  await import(main)
} else {
  const node = fileURLToPath(new URL('../../node_modules/node/bin/node', import.meta.url))
  if (!existsSync(node)) {
    process.stderr.write(
      'closedbookd: Node 24 is not installed here yet; run `npm ci` in the repository first\n',
    )
    process.exit(70)
  }
  const child = spawn(
    node,
    [...nodeFlags(), '--no-warnings', fileURLToPath(import.meta.url), ...process.argv.slice(2)],
    { stdio: 'inherit' },
  )
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
  child.on('exit', (code) => process.exit(code ?? 1))
}
