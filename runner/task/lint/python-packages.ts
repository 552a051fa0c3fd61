/** Which Python packages a command installs, and whether each is pinned to one version. */

const valueFlags = new Set(
  '-r --requirement -c --constraint -i --index-url --extra-index-url -t --target --prefix --root --cache-dir --python -p --log --src --find-links -f --platform --config-settings -C --index --default-index --from'.split(
    ' ',
  ),
)

/** null where the command installs no Python packages. */
export function installedPackages(words: readonly string[]): readonly string[] | null {
  const args = installArguments(words)
  if (args === null) return null
  const packages: string[] = []
  for (let at = 0; at < args.length; at += 1) {
    const token = args[at] ?? ''
    const equals = token.indexOf('=')
    const flag = token.startsWith('-') && equals !== -1 ? token.slice(0, equals) : token
    const value = (): string => (flag === token ? (args[(at += 1)] ?? '') : token.slice(equals + 1))
    if (/^\d?[<>]/.test(token)) {
      if (/[<>]$/.test(token)) at += 1
    } else if (flag === '--with' || flag === '-w') packages.push(value())
    else if (flag === '-e' || flag === '--editable') {
      const target = value()
      if (target.includes('://')) packages.push(target)
    } else if (valueFlags.has(flag)) value()
    else if (!token.startsWith('-')) {
      if (words[0] === 'uvx') break
      packages.push(token)
    }
  }
  const upgrade = args.includes('-U') || args.includes('--upgrade')
  return packages.length === 1 && packages[0] === 'pip' && upgrade ? [] : packages
}

function installArguments(words: readonly string[]): readonly string[] | null {
  const [first = '', second, third, fourth] = words
  const program = first.replace(/^.*\//, '')
  if (/^pip3?(?:\.\d+)?$/.test(program) && second === 'install') return words.slice(2)
  if (/^python[\d.]*$/.test(program) && second === '-m' && third === 'pip' && fourth === 'install')
    return words.slice(4)
  if (program === 'uv' && (second === 'pip' || second === 'tool') && third === 'install')
    return words.slice(3)
  if (program === 'uvx') return words.slice(1)
  return null
}

/** Local files and variables are left alone; a URL must name a commit or a digest. */
export function isUnpinned(text: string): boolean {
  if (text === '' || text.includes('$') || /^(?:\.|\/|file:)/.test(text)) return false
  if (text.includes('://')) return !/@[0-9a-f]{40}(?:#|$)|#sha256=[0-9a-f]{64}$/i.test(text)
  if (/\.(?:whl|tar\.gz|zip)$/.test(text)) return false
  const requirement = /^[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*(.*)$/.exec(text.split(';')[0] ?? '')
  if (requirement === null) return false
  const versions = requirement[1] ?? ''
  // What is no requirement at all (a stray word with odd characters) is not ours to judge.
  if (versions !== '' && !/^[(<>=!~]/.test(versions) && !versions.startsWith('@')) return false
  return !/={2,3}\s*[^*,)\s]+(?:[,)\s]|$)/.test(versions)
}

/** Lines of a requirements file that are not pinned, with their numbers. */
export function unpinnedRequirements(text: string): { line: number; requirement: string }[] {
  return text.split(/\r?\n/).flatMap((raw, index) => {
    const requirement = raw
      .replace(/(?:^|\s)#.*$/, '')
      .replace(/\\\s*$/, '')
      .trim()
    if (requirement === '' || requirement.startsWith('-')) return []
    const first = requirement.split(/\s+--/)[0] ?? ''
    return isUnpinned(first) ? [{ line: index + 1, requirement: first }] : []
  })
}

export const packageName = (requirement: string): string =>
  (requirement.split(/[<>=!~[; @]/)[0] ?? '').toLowerCase().replaceAll('_', '-')
