/**
 * Whether starting a shell prints something: an agent would read it after every command. The image's own shell is run
 * for it, in an offline container that is thrown away, and nothing is believed but what it printed.
 */
import { capture, exitCodeOf, type Sandbox } from '../../../trial/sandbox.ts'
import type { Findings } from '../finding.ts'

const ways: readonly (readonly [string, readonly string[], string])[] = [
  ['a login shell', ['/bin/bash', '-lc', ':'], '/etc/profile, /etc/profile.d and ~/.profile'],
  ['an interactive shell', ['/bin/bash', '-ic', ':'], '/etc/bash.bashrc and ~/.bashrc'],
  ['a plain shell', ['/bin/bash', '-c', ':'], 'the file that BASH_ENV names'],
]

/** Of the shell itself, where there is no terminal. */
const ordinary =
  /^(?:bash: (?:cannot set terminal process group|no job control in this shell).*|BusyBox v.*|Enter 'help' for a list.*|.*can't access tty; job control turned off.*|(?:\S+ )?[#$>] ?)$/gm

export async function checkShells(
  findings: Findings,
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<void> {
  for (const [what, argv, files] of ways) {
    const run = await capture(
      sandbox,
      { argv: [...argv], timeoutMs: 20_000 },
      { signal, limitBytes: 1024 * 1024 },
    )
    if (exitCodeOf(run.end) === null) {
      findings.add(
        'noisy-shell',
        'image:/bin/bash',
        `${what} that does nothing did not end: see ${files}`,
      )
      continue
    }
    if (exitCodeOf(run.end) === 127 || exitCodeOf(run.end) === 126) return
    const printed = `${run.stdout.toString('utf8')}\n${run.stderr.toString('utf8')}`
      .replace(ordinary, '')
      .trim()
    if (printed !== '')
      findings.add(
        'noisy-shell',
        'image:/bin/bash',
        `${what} prints ${JSON.stringify(printed.split('\n')[0]?.slice(0, 80))}: see ${files}`,
      )
  }
}
