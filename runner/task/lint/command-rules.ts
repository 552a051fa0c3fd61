/** What commands of Dockerfiles, test scripts and solutions install and download. */
import type { Findings } from './finding.ts'
import { installedPackages, isUnpinned } from './python-packages.ts'
import { commandsOf, logicalLines, type Command } from './shell-text.ts'

export type CommandsOf = 'image' | 'tests' | 'solution'

export function checkScript(findings: Findings, file: string, text: string, of: CommandsOf): void {
  for (const { line, text: one } of logicalLines(text)) checkLine(findings, file, line, one, of)
}

export function checkLine(
  findings: Findings,
  file: string,
  line: number | null,
  text: string,
  of: CommandsOf,
): void {
  const commands = commandsOf(text)
  for (const [index, command] of commands.entries()) {
    const { words } = command
    const packages = installedPackages(words)
    const offline = words.some((word) =>
      ['--offline', '--no-index', '--no-download'].includes(word),
    )
    const constrained = words.some((word) => /^(?:-c|--constraint)(?:=|$)/.test(word))
    // What lies in a directory of wheels is pinned by what was put there.
    const loose = constrained || offline ? [] : (packages ?? []).filter(isUnpinned)
    if (loose.length > 0)
      findings.add(
        'unpinned-python-dependency',
        file,
        `${loose.join(', ')}: write an exact version (name==1.2.3) or install from a requirements file with versions`,
        line,
      )
    if (of !== 'tests') continue
    const installer = packages === null ? systemInstaller(words) : words.slice(0, 2).join(' ')
    if (installer !== null && !offline)
      findings.add(
        'verifier-runtime-install',
        file,
        `\`${installer}\` at test time, and suites run offline: install it in environment/Dockerfile`,
        line,
      )
    if (isDownload(command, commands[index + 1]))
      findings.add(
        'verifier-network-download',
        file,
        `\`${words.join(' ').slice(0, 80)}\` downloads, and suites run offline: put the file into tests/ or into the image`,
        line,
      )
  }
}

function systemInstaller(words: readonly string[]): string | null {
  const [program = '', ...args] = words
  const verb = args.find((arg) => !arg.startsWith('-'))
  const installs: Readonly<Record<string, readonly string[]>> = {
    'apt-get': ['install', 'update'],
    apt: ['install', 'update'],
    apk: ['add', 'update'],
    dnf: ['install'],
    yum: ['install'],
    npm: ['install', 'i', 'ci'],
    pnpm: ['install', 'add', 'i'],
    yarn: ['install', 'add'],
    conda: ['install', 'create'],
    mamba: ['install', 'create'],
    cargo: ['install'],
    go: ['install', 'get'],
    gem: ['install'],
    poetry: ['install', 'add'],
    uv: ['sync', 'add'],
  }
  const known = installs[program.replace(/^.*\//, '')]
  return verb !== undefined && known?.includes(verb) === true ? `${program} ${verb}` : null
}

function isDownload({ words, separator }: Command, next: Command | undefined): boolean {
  const [program = '', ...args] = words
  const name = program.replace(/^.*\//, '')
  if (!['curl', 'wget', 'git', 'huggingface-cli', 'hf'].includes(name)) return false
  if (name === 'huggingface-cli' || name === 'hf') return args[0] === 'download'
  const outside = args.some((arg) => isOutside(arg.replace(/^--url=/, '')))
  if (!outside) return false
  if (name === 'git') return ['clone', 'fetch', 'pull', 'ls-remote'].includes(args[0] ?? '')
  if (separator === '|' && /^(?:ba|da|z)?sh$/.test(next?.words[0] ?? '')) return true
  if (args.some((arg) => ['--spider', '-O-', '-qO-'].includes(arg))) return false
  const output = outputOf(name, args)
  if (output !== null) return output !== '' && output !== '-' && output !== '/dev/null'
  return name === 'wget' || args.some((arg) => arg.startsWith('>') && arg !== '>/dev/null')
}

/** Where the bytes go; null where no option says. */
function outputOf(name: string, args: readonly string[]): string | null {
  for (const [index, arg] of args.entries()) {
    if (name === 'curl' && (arg === '-O' || arg === '--remote-name')) return 'file'
    if (['-o', '--output', '-O', '--output-document', '>'].includes(arg))
      return args[index + 1] ?? ''
    const long = /^--output(?:-document)?=(.*)$/.exec(arg)
    if (long !== null) return long[1] ?? ''
    if (name === 'curl' && /^-[a-zA-Z]*o$/.test(arg)) return args[index + 1] ?? ''
    if (name === 'curl' && /^-[a-zA-Z]*O$/.test(arg)) return 'file'
  }
  return null
}

/** A URL, or git's user@host:path, of a host that is not this machine. */
export function isOutside(text: string): boolean {
  const ssh = /^[\w.-]+@([\w-]+(?:\.[\w-]+)+):/.exec(text)
  if (ssh !== null) return true
  const url = /^[a-z][a-z0-9+.-]*:\/\/(?:[^/@\s]*@)?(\[[^\]]*\]|[^/:?#\s]+)/i.exec(text)
  return url?.[1] !== undefined && isOutsideHost(url[1])
}

export const isOutsideHost = (host: string): boolean =>
  host.includes('.') &&
  !/^(?:127\.|0\.0\.0\.0$|10\.|192\.168\.|198\.51\.100\.|203\.0\.113\.|192\.0\.2\.)/.test(host) &&
  !/(?:^|\.)(?:localhost|test|example|invalid|local|internal)$/i.test(host) &&
  !/(?:^|\.)example\.(?:com|org|net)$/i.test(host)
