/**
 * Unmodified clients of the Hub: each in a folder of packages of its own under `.closedbook/peers/`, installed once from
 * the package index. Only that needs a network; a run has the gateway's address and nothing else of the Hub.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { huggingFaceEnvironment } from '../../../runner/trial/hugging-face.ts'
import { policySchema } from '../../../policy/policy.ts'
import { pythonPackages } from '../../support/python-packages.ts'

/** Pinned requirements of each client; the name is the folder's. */
const requirements = {
  'hub-2.4.0': ['huggingface_hub==2.4.0'],
  'hub-1.28.0': ['huggingface_hub==1.28.0'],
  transformers: ['transformers==5.24.0', 'numpy', 'safetensors'],
} as const
export type ClientName = keyof typeof requirements

export interface ClientRun {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** The folder of the client's packages, for PYTHONPATH. */
export const installed = (name: ClientName): Promise<string> =>
  pythonPackages(name, requirements[name])

const pinned = policySchema.parse({
  version: 1,
  huggingface: { repos: [{ repo: 'acme/tiny', revision: 'main' }] },
})

/** One client with a home of its own, as a task's sandbox would set it up. */
export class HubClient {
  readonly packages: string
  readonly env: NodeJS.ProcessEnv

  constructor(packages: string, endpoint: string, home: string) {
    this.packages = packages
    this.env = {
      PATH: process.env['PATH'],
      HOME: home,
      HF_HOME: path.join(home, 'hf'),
      PYTHONPATH: packages,
      // The host's packages stay out of it.
      PYTHONNOUSERSITE: '1',
      PYTHONDONTWRITEBYTECODE: '1',
      NO_COLOR: '1',
      HF_HUB_DISABLE_PROGRESS_BARS: '1',
      GIT_TERMINAL_PROMPT: '0',
      ...huggingFaceEnvironment(pinned),
      HF_ENDPOINT: endpoint,
    }
  }

  /** The `hf` command. */
  hf(...args: string[]): Promise<ClientRun> {
    return this.#spawn([path.join(this.packages, 'bin', 'hf'), ...args])
  }

  /** The program's last line is JSON. */
  async python(program: string, ...args: string[]): Promise<unknown> {
    const { code, stdout, stderr } = await this.#spawn(['-c', program, ...args])
    try {
      return JSON.parse(stdout.trim().split('\n').at(-1) ?? '')
    } catch {
      throw new Error(`exit ${code} and no JSON:\n${stdout}\n${stderr}`)
    }
  }

  async #spawn(args: readonly string[]): Promise<ClientRun> {
    const child = spawn('python3', args, { env: this.env, stdio: ['ignore', 'pipe', 'pipe'] })
    const output = { stdout: '', stderr: '' }
    child.stdout.on('data', (chunk: Buffer) => (output.stdout += chunk.toString()))
    child.stderr.on('data', (chunk: Buffer) => (output.stderr += chunk.toString()))
    const [code] = (await once(child, 'close')) as [number | null]
    return { code, ...output }
  }
}
