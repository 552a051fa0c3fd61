/**
 * Asks nvidia-smi one question at a time limit. A GPU that fell off its bus leaves the program in an uninterruptible
 * sleep that no signal ends: the answer is then given up on, and nothing more is asked until that process is gone.
 */
import { execFile, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { GpuFault } from './gpu-fault.ts'

const outputLimitBytes = 1024 * 1024
const stuckGraceMs = 1000

export class Smi {
  readonly path: string
  readonly #timeoutMs: number
  readonly #stuck = new Set<ChildProcess>()

  constructor(path: string, options: { timeoutMs: number }) {
    this.path = path
    this.#timeoutMs = options.timeoutMs
  }

  /** The output; throws GpuFault with what nvidia-smi said, or that it said nothing in time. */
  async ask(args: readonly string[]): Promise<string> {
    const seconds = this.#timeoutMs / 1000
    if (this.#stuck.size > 0) {
      // One that can be killed is gone in a moment.
      const gone = [...this.#stuck].map((child) => once(child, 'close'))
      await Promise.race([Promise.all(gone), delay(stuckGraceMs)])
    }
    if (this.#stuck.size > 0)
      throw new GpuFault('hang', `an nvidia-smi that did not end within ${seconds} s still hangs`)
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    const child = execFile(
      this.path,
      [...args],
      { maxBuffer: outputLimitBytes, env: { ...process.env, LC_ALL: 'C' } },
      (error, stdout, stderr) => {
        if (error === null || stdout.startsWith('No devices were found')) resolve(stdout)
        else reject(new GpuFault('failed', said(stdout, stderr) ?? error.message))
      },
    )
    child.once('close', () => this.#stuck.delete(child))
    const timer = setTimeout(() => {
      this.#stuck.add(child)
      child.kill('SIGKILL')
      reject(new GpuFault('hang', `nvidia-smi did not answer within ${seconds} s`))
    }, this.#timeoutMs)
    try {
      return await promise
    } finally {
      clearTimeout(timer)
    }
  }
}

/** It tells its faults on standard output. */
function said(stdout: string, stderr: string): string | null {
  const text = `${stderr.trim()} ${stdout.trim()}`.trim().replaceAll(/\s+/g, ' ')
  return text === '' ? null : `nvidia-smi: ${text.slice(0, 500)}`
}
