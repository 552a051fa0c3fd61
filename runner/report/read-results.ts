/**
 * Reads many result files fast, and never fails for one: a file that is missing, cut off, not JSON, or of another schema is
 * named with what could still be made out of it. The tests and the proof of a result, its largest parts, take no part in
 * any figure of a report: where the file is laid out as we write it they are skipped unread, though not by the digest.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { messageOf, systemCode } from '../errors.ts'
import { resultSchema } from '../result.ts'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import type { FileReading } from './entries.ts'

/** Throws nothing. A file that isn't there reads as not ok, `missing`. */
export function readResultFile(file: string): FileReading & { readonly missing?: true } {
  let bytes: Buffer
  try {
    bytes = readFileSync(file)
  } catch (error) {
    const missing = systemCode(error) === 'ENOENT'
    const why = missing ? `${file} is gone` : `${file} can't be read: ${messageOf(error)}`
    return { ok: false, file, why, salvaged: nothing, ...(missing && { missing }) }
  }
  const text = bytes.toString('utf8')
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
  let value: unknown
  try {
    value = JSON.parse(withoutLists(text))
  } catch (error) {
    const why =
      bytes.length === 0 ? `${file} is empty` : `${file} is cut off or damaged: ${messageOf(error)}`
    return { ok: false, file, why, salvaged: salvage(text) }
  }
  const parsed = resultSchema.safeParse(value)
  if (parsed.success) return { ok: true, file, digest, result: parsed.data }
  const why = `${file} is not a closedbook.result/1: ${zodMessage(parsed.error)}`
  return { ok: false, file, why, salvaged: salvage(text) }
}

/**
 * Whole lines at this depth are the writer's own: a string of JSON holds no line feed, so nothing inside of a test can
 * look like the end. Any other layout is parsed whole.
 */
function withoutLists(text: string): string {
  const tests = cutOut(text, '\n  "tests": [\n', '\n  ],', '\n  "tests": [],')
  return cutOut(tests, '\n  "proof": {\n', '\n  },', '\n  "proof": {"before":[],"after":[]},')
}

function cutOut(text: string, begin: string, end: string, instead: string): string {
  const from = text.indexOf(begin)
  const until = from < 0 ? -1 : text.indexOf(end, from + begin.length - 1)
  return until < 0 ? text : text.slice(0, from) + instead + text.slice(until + end.length)
}

const nothing = { job: null, trial: null, task: null, configuration: null, run: null } as const

/** What the head of a file cut off still says, by the layout that we write. */
function salvage(text: string): Extract<FileReading, { ok: false }>['salvaged'] {
  const field = (pattern: RegExp): string | null => {
    const found = pattern.exec(text)?.[1]
    if (found === undefined) return null
    try {
      return JSON.parse(found) as string
    } catch {
      return null
    }
  }
  const run = /^ {2}"run": (\d{1,6}),$/m.exec(text)?.[1]
  return {
    job: field(/^ {2}"job": ("(?:[^"\\]|\\.)*")/m),
    trial: field(/^ {2}"trial": ("(?:[^"\\]|\\.)*")/m),
    task: field(/^ {2}"task": \{\n {4}"name": ("(?:[^"\\]|\\.)*")/m),
    configuration: field(/^ {2}"configuration": \{\n {4}"name": ("(?:[^"\\]|\\.)*")/m),
    run: run === undefined ? null : Number(run),
  }
}
