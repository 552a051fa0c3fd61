/**
 * Checks audit lines as they stand in a log or in an exported file: every line an event of the schema, numbers from 1
 * without a gap, each `prev` the hash of the line before, and each canary of the lease's proof there. Lines of
 * several leases may be mixed, each lease in its order. It can't tell what was cut off at the end, unless it
 * is told what the last line was; and whoever may write every copy can write a new chain.
 */
import { hash } from 'node:crypto'
import { z } from 'zod'
import { CanaryCensus, type ProvenCanary } from './audit-canaries.ts'
import { auditEventSchema, type AuditEvent } from './audit-event.ts'

export const lineHash = (line: string): string => hash('sha256', line, 'hex')

export const auditProblemSchema = z.strictObject({
  code: z.enum(['not_an_event', 'gap', 'chain', 'unchained', 'torn', 'end', 'canary']),
  /** Of the file, from 1; null where it is not of one line. */
  line: z.int().nullable(),
  message: z.string(),
})
export type AuditProblem = z.infer<typeof auditProblemSchema>

/** What was found of one lease. */
export const auditVerdictSchema = z.strictObject({
  lease: z.string(),
  trial: z.string().nullable(),
  ok: z.boolean(),
  events: z.int(),
  /** Hash of its last line. */
  head: z.string().nullable(),
  /** True where the number and the hash of the last line are those that were noted when the log was closed. */
  complete: z.boolean(),
  canaries: z.strictObject({ expected: z.int(), missing: z.array(z.string()) }),
  /** The first of them. */
  problems: z.array(auditProblemSchema),
  moreProblems: z.int(),
})
export type AuditVerdict = z.infer<typeof auditVerdictSchema>

export interface Expected {
  readonly proof: readonly ProvenCanary[]
  /** Number of events and hash of the last line, noted when the log was closed. */
  readonly end: { readonly events: number; readonly head: string | null } | null
}

const maxProblems = 20

class LeaseCheck {
  readonly #lease: string
  readonly #expected: Expected
  readonly #canaries: CanaryCensus
  readonly #problems: AuditProblem[] = []
  #more = 0
  #trial: string | null = null
  #events = 0
  #seq = 0
  #head: string | null = null
  #chained = false

  constructor(lease: string, expected: Expected) {
    this.#lease = lease
    this.#expected = expected
    this.#canaries = new CanaryCensus(expected.proof)
  }

  problem(code: AuditProblem['code'], line: number | null, message: string): void {
    if (this.#problems.length < maxProblems) this.#problems.push({ code, line, message })
    else this.#more += 1
  }

  add(event: AuditEvent, text: string, line: number): void {
    this.#trial ??= event.trial
    if (event.seq !== this.#seq + 1) {
      this.problem('gap', line, `event ${event.seq} follows event ${this.#seq}`)
    } else if (event.prev === undefined) {
      if (this.#chained) this.problem('unchained', line, `event ${event.seq} has no hash`)
    } else if (event.prev !== this.#head) {
      const where =
        event.seq === 1 ? 'is the first and names a line before it' : 'was made after another line'
      this.problem('chain', line, `event ${event.seq} ${where}: one of them was changed`)
    }
    this.#chained ||= event.prev !== undefined
    this.#events += 1
    this.#seq = event.seq
    this.#head = lineHash(text)
    this.#canaries.add(event)
  }

  verdict(): AuditVerdict {
    const { end } = this.#expected
    if (!this.#chained && this.#events > 0)
      this.problem(
        'unchained',
        null,
        'no event has a hash of the one before: the log is from before there was a chain',
      )
    const complete = end !== null && end.events === this.#seq && end.head === this.#head
    if (end !== null && !complete)
      this.problem(
        'end',
        null,
        `it ends with event ${this.#seq}; when it was closed the last was ${end.events}, and another or the same was changed`,
      )
    const missing = this.#canaries.missing()
    for (const canary of missing)
      this.problem('canary', null, `the proof says that ${canary} is in the log, and it isn't`)
    return {
      lease: this.#lease,
      trial: this.#trial,
      ok: this.#problems.length === 0,
      events: this.#events,
      head: this.#head,
      complete,
      canaries: { expected: this.#canaries.expected, missing },
      problems: this.#problems,
      moreProblems: this.#more,
    }
  }
}

export class AuditVerifier {
  readonly #checks = new Map<string, LeaseCheck>()
  readonly #only: string | null
  readonly #expect: (lease: string) => Expected
  #line = 0
  #current: string

  /** `lease`: whose log it must be, also when there is no line in it; null for a file of several. */
  constructor(lease: string | null, expect: (lease: string) => Expected) {
    this.#only = lease
    this.#expect = expect
    this.#current = lease ?? ''
    if (lease !== null) this.#check(lease)
  }

  /** One line, without its newline. */
  add(text: string): void {
    this.#line += 1
    const { data, error } = auditEventSchema.safeParse(parse(text))
    if (data !== undefined && (this.#only === null || data.lease === this.#only)) {
      this.#current = data.lease
      this.#check(data.lease).add(data, text, this.#line)
      return
    }
    const [issue] = error?.issues ?? []
    const where = issue === undefined || issue.path.length === 0 ? '' : `${issue.path.join('.')}: `
    const why = data === undefined ? `${where}${issue?.message}` : 'it is of another lease'
    const words = `no audit event of this log: ${why}`
    this.#check(this.#current).problem('not_an_event', this.#line, words)
  }

  /** The file ended amid a line. */
  torn(bytes: number): void {
    const words = `the last line is torn: ${bytes} bytes without an end`
    this.#check(this.#current).problem('torn', this.#line + 1, words)
  }

  verdicts(): AuditVerdict[] {
    return [...this.#checks.values()].map((check) => check.verdict())
  }

  #check(lease: string): LeaseCheck {
    let check = this.#checks.get(lease)
    if (check === undefined) {
      check = new LeaseCheck(lease, this.#expect(lease))
      this.#checks.set(lease, check)
    }
    return check
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
