/**
 * Brings what a bare clone lacks, on any Node from 20 on and with nothing installed: npm packages (Node 24 among
 * them) and, as root on Debian, the system packages. Plain JavaScript, because nothing else can run yet. It says each
 * thing that it does, and does nothing that is already done.
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { accessSync, constants, existsSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../..', import.meta.url))

const systemPackages = [
  ['dockerd', 'docker.io'],
  ['nft', 'nftables'],
  ['ip', 'iproute2'],
  ['nsenter', 'util-linux'],
  ['debootstrap', 'debootstrap'],
  ['catatonit', 'catatonit'],
  ['busybox', 'busybox-static'],
]

/** The full path of a program, or undefined. sbin is searched too: a user's PATH often lacks it. */
export function which(name) {
  const places = [...(process.env.PATH ?? '').split(':'), '/usr/sbin', '/sbin', '/usr/local/sbin']
  for (const place of places) {
    const file = path.join(place, name)
    try {
      accessSync(file, constants.X_OK)
      return file
    } catch {
      // look further
    }
  }
  return undefined
}

function run(program, args, options = {}) {
  const result = spawnSync(program, args, { cwd: root, encoding: 'utf8', ...options })
  if (result.status === 0) return
  const said = [result.stdout, result.stderr].filter(Boolean).join('\n').trim()
  const lines = said.split('\n').slice(-15).join('\n')
  throw new Error(
    `${program} ${args.join(' ')} failed${result.error ? ` (${result.error.message})` : ` with status ${result.status}`}:\n${lines}`,
  )
}

function installNpmPackages(say) {
  const lock = readFileSync(path.join(root, 'package-lock.json'))
  const stamp = path.join(root, 'node_modules', '.closedbook-lock')
  const digest = createHash('sha256').update(lock).digest('hex')
  const node = path.join(root, 'node_modules', 'node', 'bin', 'node')
  if (existsSync(node) && existsSync(stamp) && readFileSync(stamp, 'utf8') === digest) return
  say('npm packages')
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'])
  if (!existsSync(node))
    throw new Error(
      'npm did not install Node 24 (package "node"): its install script was not allowed to run; npm 11 or newer reads allowScripts from package.json',
    )
  writeFileSync(stamp, digest)
}

/** For the tests of the dashboard alone. */
const browserPackages = [['chromium', 'chromium']]

function installSystemPackages(say, wanted) {
  const missing = wanted.filter(([program]) => which(program) === undefined)
  if (missing.length === 0) return
  const names = missing.map(([, name]) => name)
  if (process.getuid?.() !== 0)
    throw new Error(
      `these system packages are missing and only root can install them: ${names.join(' ')}`,
    )
  if (which('apt-get') === undefined)
    throw new Error(
      `please install what Debian calls ${names.join(' ')}; this system has no apt-get`,
    )
  // with what docker.io recommends: where nothing has mounted the cgroups yet, cgroupfs-mount does
  say(`system packages: ${names.join(' ')}`)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  run('apt-get', ['update', '-qq'], { env })
  const others = names.filter((name) => name !== 'postgresql')
  if (others.length > 0) run('apt-get', ['install', '-y', '-qq', ...others], { env })
  if (needsPostgres) installPostgres(env)
}

/** Returns the path of Node 24. `say(what)` is called before each installation; `browser`: Chromium too. */
export function setUp(say, { browser = false } = {}) {
  installNpmPackages(say)
  installSystemPackages(say, browser ? [...systemPackages, ...browserPackages] : systemPackages)
  return path.join(root, 'node_modules', 'node', 'bin', 'node')
}
