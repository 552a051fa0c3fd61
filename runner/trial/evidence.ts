/** The files of one execution: names, writing, and reading back for people who come later. */
import { createReadStream, createWriteStream, existsSync } from 'node:fs'
import { readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { auditEventSchema, type AuditEvent } from '../../policy/audit-event.ts'
import { makeDirectory, writeError } from '../json-file.ts'
import { stepSchema, type Step } from '../step-log.ts'

export const evidenceNames = {
  steps: 'steps.jsonl',
  egress: 'egress.jsonl',
  exchanges: 'exchanges.jsonl',
  patch: 'patch.diff',
  snapshot: 'snapshot.tar',
  collect: 'collect.json',
  trajectory: 'trajectory.json',
  atif: 'trajectory.atif.json',
  harnessLog: 'harness.log',
  proof: 'proof.json',
  freeze: 'freeze.json',
} as const

export class Evidence {
  readonly directory: string

  private constructor(directory: string) {
    this.directory = directory
  }

  static async open(directory: string): Promise<Evidence> {
    await makeDirectory(directory)
    return new Evidence(directory)
  }

  path(name: string): string {
    return path.join(this.directory, name)
  }

  /** Evidence is never written over. */
  async write(name: string, content: string | Uint8Array): Promise<void> {
    try {
      await writeFile(this.path(name), content, { flag: 'wx' })
    } catch (error) {
      throw writeError(this.path(name), error)
    }
  }

  async writeJson(name: string, value: unknown): Promise<void> {
    await this.write(name, `${JSON.stringify(value, null, 2)}\n`)
  }

  async writeStream(name: string, content: Readable): Promise<void> {
    try {
      await pipeline(content, createWriteStream(this.path(name), { flags: 'wx' }))
    } catch (error) {
      throw writeError(this.path(name), error)
    }
  }

  async writeLines(
    name: string,
    values: AsyncIterable<unknown> | Iterable<unknown>,
  ): Promise<void> {
    const lines: string[] = []
    for await (const value of values) lines.push(`${JSON.stringify(value)}\n`)
    await this.write(name, lines.join(''))
  }
}

/** Of executions: `x2-…` comes before `x10-…`. */
export const inOrder = (a: string, b: string): number => a.localeCompare(b, 'en', { numeric: true })

/** All egress events of a trial, of every execution in order. */
export async function* readEgressFile(trialDir: string): AsyncGenerator<AuditEvent> {
  const executions = path.join(trialDir, 'executions')
  for (const name of (await readdir(executions).catch((): string[] => [])).toSorted(inOrder))
    for await (const line of lines(path.join(executions, name, evidenceNames.egress)))
      yield auditEventSchema.parse(JSON.parse(line))
}

export async function* readSteps(executionDir: string): AsyncGenerator<Step> {
  for await (const line of lines(path.join(executionDir, evidenceNames.steps)))
    yield stepSchema.parse(JSON.parse(line))
}

/** Whole lines only: one that has no end yet is still being written. */
async function* lines(file: string): AsyncGenerator<string> {
  if (!existsSync(file)) return
  let rest = ''
  for await (const chunk of createReadStream(file, { encoding: 'utf8' }) as AsyncIterable<string>) {
    const parts = (rest + chunk).split('\n')
    rest = parts.pop() ?? ''
    yield* parts.filter((line) => line !== '')
  }
}
