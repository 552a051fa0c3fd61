/**
 * Git as we use it inside a container of the pinned image: a bare scratch repository of our own, so that no
 * configuration, attribute, filter, hook, index or object of any other repository takes part. Bytes go in by
 * fast-import (raw) and come out by diff-tree. Scripts are POSIX sh; `$1` is the absolute path of git.
 */
import { RunnerError } from '../errors.ts'
import { capture, exitCodeOf, type Captured, type Sandbox } from './sandbox.ts'
import type { Readable } from 'node:stream'

/** Exit codes of our scripts; git's own are below 30 or 128 and more. */
export const scriptExit = {
  noDirectory: 40,
  noGit: 41,
  noRepository: 42,
  noHead: 43,
  noScratch: 44,
} as const

const clean = `
for name in $(env | sed -n 's/^\\(GIT_[A-Za-z0-9_]*\\)=.*/\\1/p'); do unset "$name"; done
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_SYSTEM=/dev/null GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
export HOME=/nonexistent XDG_CONFIG_HOME=/nonexistent LC_ALL=C GIT_TERMINAL_PROMPT=0 GIT_PAGER=cat
export GIT_DEFAULT_HASH=sha1 GIT_LITERAL_PATHSPECS=1 GIT_OPTIONAL_LOCKS=0
umask 022
`

/** Leaves GIT_DIR set to a new bare repository that goes away with the script. */
const scratch = `
scratch=$(mktemp -d /tmp/XXXXXXXXXX 2>/dev/null || mktemp -d /var/tmp/XXXXXXXXXX) || exit ${scriptExit.noScratch}
trap 'rm -rf "$scratch"' EXIT
"$1" init -q --bare --template= "$scratch/git" || exit ${scriptExit.noScratch}
mkdir -p "$scratch/git/info"
printf '* -text !eol -ident -filter !working-tree-encoding !diff !whitespace !export-subst\\n' >"$scratch/git/info/attributes"
cat >>"$scratch/git/config" <<'END'
[core]
	protectNTFS = false
	protectHFS = false
	autocrlf = false
	fileMode = true
	symlinks = true
	ignoreCase = false
	precomposeUnicode = false
	attributesFile = /dev/null
	excludesFile = /dev/null
	hooksPath = /dev/null
	fsync = none
	bigFileThreshold = 1m
[pack]
	compression = 1
[gc]
	auto = 0
END
export GIT_DIR="$scratch/git"
`

export async function runGitScript(
  sandbox: Sandbox,
  script: string,
  args: readonly string[],
  options: {
    stdin?: Readable | Buffer
    limitBytes?: number
    onStdout?: () => void
    scratch: boolean
    signal?: AbortSignal | undefined
  },
): Promise<Captured> {
  const text = `${clean}${options.scratch ? scratch : ''}${script}`
  return capture(
    sandbox,
    { argv: ['/bin/sh', '-c', text, 'closedbook', ...args], workdir: '/' },
    {
      ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
      ...(options.limitBytes === undefined ? {} : { limitBytes: options.limitBytes }),
      ...(options.onStdout === undefined ? {} : { onStdout: options.onStdout }),
      signal: options.signal,
    },
  )
}

/** For steps that can't fail but by a fault of the host or of ours. */
export function mustSucceed(captured: Captured, what: string): Captured {
  if (exitCodeOf(captured.end) === 0) return captured
  throw new RunnerError(
    'collect_failed',
    'infra',
    `${what} failed in the pristine container (${JSON.stringify(captured.end.exit)}): ${lastLines(captured.stderr)}`,
  )
}

export const lastLines = (bytes: Buffer): string =>
  bytes.toString('utf8').trim().split('\n').slice(-3).join(' · ').slice(0, 600) || 'no message'
