/**
 * What a directory takes on disk, counted by `du`. A shell beside the daemon starts it: to start a process holds up the
 * daemon's one thread for two milliseconds, and every sandbox is looked at every two seconds, while that shell is small.
 * It ends with the daemon, for its input ends then; where it is lost or hangs, the next question starts another.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import type { Socket } from 'node:net'

export interface DiskUsage {
  readonly bytes: number
  readonly files: number
}

/** Questions are `<id> <directory>`, a line each; answers `<id> <bytes> <files>`, as they come. */
const script = `
while IFS= read -r question; do
  {
    id=\${question%% *}
    directory=\${question#* }
    bytes=$(timeout -k 5 60 du -sx --block-size=1 -- "$directory" 2>/dev/null)
    files=$(timeout -k 5 60 du -sx --inodes -- "$directory" 2>/dev/null)
    printf '%s %s %s\\n' "$id" "\${bytes%%[!0-9]*}" "\${files%%[!0-9]*}"
  } &
done
wait
`
// du exits 1 when a file vanishes under it, and has printed the sum all the same.
const answer = /^(\d+) (\d+) (\d+)$/

/** Beyond what both `du` may take. */
const patienceMs = 150_000

class Counter {
  readonly #shell: ChildProcess
  readonly #stdin: Socket | null
  readonly #stdout: Socket | null
  readonly #asked = new Map<string, (usage: DiskUsage | null) => void>()
  #last = 0
  #rest = ''
  #gone = false

  constructor() {
    this.#shell = spawn('sh', ['-c', script], { stdio: ['pipe', 'pipe', 'ignore'] })
    this.#stdin = this.#shell.stdin as Socket | null
    this.#stdout = this.#shell.stdout as Socket | null
    // Only a question that waits keeps a process alive. Where no process could be started there are no streams either.
    for (const held of [this.#shell, this.#stdin, this.#stdout]) {
      held?.unref()
      held?.on('error', () => this.#lose())
      held?.on('close', () => this.#lose())
    }
    this.#stdout?.setEncoding('utf8').on('data', (text: string) => this.#hear(text))
  }

  get gone(): boolean {
    return this.#gone
  }

  async ask(directory: string, withinMs: number): Promise<DiskUsage | null> {
    const id = String((this.#last += 1))
    const { promise, resolve } = Promise.withResolvers<DiskUsage | null>()
    this.#asked.set(id, resolve)
    this.#stdout?.ref()
    this.#stdin?.write(`${id} ${directory}\n`)
    // The shell is stopped, or a file system hangs: the next question must not wait for that.
    const late = setTimeout(() => this.#lose(), withinMs)
    return promise.finally(() => clearTimeout(late))
  }

  #hear(text: string): void {
    const lines = (this.#rest + text).split('\n')
    this.#rest = lines.pop() ?? ''
    for (const line of lines) {
      const [id = ''] = line.split(' ')
      const found = answer.exec(line)
      this.#asked.get(id)?.(
        found === null ? null : { bytes: Number(found[2]), files: Number(found[3]) },
      )
      this.#asked.delete(id)
    }
    if (this.#asked.size === 0) this.#stdout?.unref()
  }

  #lose(): void {
    if (!this.#gone) this.#shell.kill('SIGKILL')
    this.#gone = true
    this.#stdin?.destroy()
    this.#stdout?.destroy()
    for (const resolve of this.#asked.values()) resolve(null)
    this.#asked.clear()
  }
}

let counter: Counter | null = null

/** Bytes and files under a directory, on its own file system only; null when it can't be read, or not in time. */
export async function diskUsage(
  directory: string | null,
  withinMs = patienceMs,
): Promise<DiskUsage | null> {
  if (directory === null || directory.includes('\n')) return null
  try {
    if (counter === null || counter.gone) counter = new Counter()
    return await counter.ask(directory, withinMs)
  } catch {
    // No process can be started now.
    return null
  }
}
