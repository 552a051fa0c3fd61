/**
 * The command that becomes the session's program: our own static shell sets the terminal's size, for the engine's first
 * resize comes too late for a fast program, prints a mark, and becomes the program. What comes before the mark is the
 * engine's complaint about a program that was never started; what comes after it is output, all of it.
 * The shell finds the program on PATH itself: left to `exec`, it would run an applet of its own under many names.
 */
import { busyboxTarget } from '../engine/container-spec.ts'

const script = `stty rows "$1" cols "$2" 2>/dev/null
printf '\\033_%s\\033\\\\' "$3"
shift 3
case $1 in */*) exec "$@" ;; esac
IFS=:
set -f
for d in $PATH; do
  f=\${d:-.}/$1
  if [ -f "$f" ] && [ -x "$f" ]; then
    unset IFS
    n=$1
    shift
    exec -a "$n" "$f" "$@"
  fi
done
printf '%s: command not found\\n' "$1"
exit 127
`

export function wrap(
  argv: readonly string[],
  { rows, cols, mark }: { rows: number; cols: number; mark: string },
): string[] {
  return [busyboxTarget, 'sh', '-c', script, 'sh', String(rows), String(cols), mark, ...argv]
}

const limitBytes = 16 * 1024

/** Takes the mark out of the first output. */
export class StartMark {
  readonly #mark: Buffer
  #held: Buffer | null = Buffer.alloc(0)

  constructor(mark: string) {
    this.#mark = Buffer.from(`\u001B_${mark}\u001B\\`)
  }

  get seen(): boolean {
    return this.#held === null
  }

  /** The words that came instead of the mark. */
  get words(): string {
    return (this.#held?.toString('utf8') ?? '').trim()
  }

  /** Output of the program; empty before the mark. */
  push(chunk: Buffer): Buffer {
    if (this.#held === null) return chunk
    const held = Buffer.concat([this.#held, chunk])
    const at = held.indexOf(this.#mark)
    if (at >= 0) {
      this.#held = null
      return held.subarray(at + this.#mark.length)
    }
    this.#held = held.subarray(0, limitBytes)
    return Buffer.alloc(0)
  }
}
