/** SWE-bench-style instances: one JSON object, an array of them, or one a line; lists may be JSON within a string. */
import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { zodMessage } from '../../../daemon/protocol/zod-message.ts'
import { RunnerError, systemCode } from '../../errors.ts'

const ids = z.preprocess(
  (value) => (typeof value === 'string' ? parseList(value) : value),
  z.array(z.string().min(1)),
)

const instanceSchema = z.looseObject({
  instance_id: z.string().regex(/^[\w.-]+$/, 'must be letters, digits, _, . and -'),
  repo: z.string().min(1),
  base_commit: z.string().regex(/^[0-9a-f]{40}$/, 'must be a full commit id of 40 hex digits'),
  patch: z.string().min(1),
  test_patch: z.string().min(1),
  problem_statement: z.string().min(1),
  FAIL_TO_PASS: ids,
  PASS_TO_PASS: ids.default([]),
  version: z.string().optional(),
  environment_setup_commit: z.string().optional(),
  created_at: z.union([z.string(), z.number()]).optional(),
})
export type Instance = z.infer<typeof instanceSchema>

function parseList(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

export async function readInstances(file: string): Promise<Instance[]> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw invalid(file, `can't be read (${systemCode(error)})`)
  })
  const values = documents(file, text)
  if (values.length === 0) throw invalid(file, 'holds no instance')
  return values.map((value, index) => {
    const parsed = instanceSchema.safeParse(value)
    if (!parsed.success) throw invalid(file, `instance ${index + 1}: ${zodMessage(parsed.error)}`)
    if (parsed.data.FAIL_TO_PASS.length === 0)
      throw invalid(
        file,
        `${parsed.data.instance_id}: FAIL_TO_PASS is empty; nothing would be tested`,
      )
    return parsed.data
  })
}

function documents(file: string, text: string): unknown[] {
  try {
    const whole: unknown = JSON.parse(text)
    return Array.isArray(whole) ? whole : [whole]
  } catch {
    return text
      .split('\n')
      .map((line, index) => ({ line, number: index + 1 }))
      .filter(({ line }) => line.trim() !== '')
      .map(({ line, number }) => {
        try {
          return JSON.parse(line) as unknown
        } catch {
          throw invalid(
            file,
            `line ${number} is not JSON; give one JSON object, an array, or one object a line`,
          )
        }
      })
  }
}

const invalid = (file: string, why: string): RunnerError =>
  new RunnerError('usage', 'operator', `${file}: ${why}`)
