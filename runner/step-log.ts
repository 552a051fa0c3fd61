/**
 * The numbered steps of a trial, folded from the lease events of its sandboxes: what the model said, what was run, how
 * it ended, what it cost, what was refused. With a model a step is one model call; without one (noop, oracle, script)
 * it is one command. Events of two leases arrive in two streams, so a command is given to its step by time, and a step
 * is handed out when nothing more can belong to it.
 */
import { z } from 'zod'
import type { LeaseEvent } from '../daemon/protocol/lease.ts'

const stepCommandSchema = z.strictObject({
  exec: z.string(),
  command: z.string(),
  /** `{code}`, `{signal}` or `unknown`; null while it runs. */
  exit: z.unknown(),
  cause: z.string().nullable(),
  startedAt: z.string(),
  durationMs: z.number().nullable(),
  outputBytes: z.int().nullable(),
  head: z.string(),
  tail: z.string(),
})
export type StepCommand = z.infer<typeof stepCommandSchema>

export const stepSchema = z.strictObject({
  step: z.int().positive(),
  time: z.string(),
  /** null where no model took part. */
  text: z.string().nullable(),
  commands: z.array(stepCommandSchema),
  tokens: z
    .strictObject({ input: z.int(), cachedInput: z.int(), output: z.int(), reasoning: z.int() })
    .nullable(),
  costUsd: z.number(),
  denied: z.array(
    z.strictObject({
      seq: z.int(),
      protocol: z.string(),
      target: z.string(),
      reason: z.string(),
      count: z.int().positive(),
    }),
  ),
})
export type Step = z.infer<typeof stepSchema>

/** Execs of the runner itself carry a label that starts so; they are no steps of the agent. */
export const ownLabel = 'closedbook:'

const accountedBytes = 2_048

/** One answer of the model, as the harness tells it. */
export interface AccountedStep {
  readonly commands: readonly {
    readonly command: string
    readonly returnCode: number | null
    readonly output: string
  }[]
}

type EventOf<T extends LeaseEvent['event']['type']> = Extract<LeaseEvent['event'], { type: T }>

export class StepLog {
  readonly #steps: Step[] = []
  readonly #wanted = new Map<Step, number>()
  readonly #byExec = new Map<string, { step: Step; command: StepCommand }>()
  /** Ends and denials that came before what they belong to. */
  readonly #early = new Map<string, EventOf<'exec.end'>>()
  readonly #ownExecs = new Set<string>()
  /** A harness in the sandbox runs its commands itself: what it was told to run is known from the model's answers. */
  readonly #commandsFromCalls: boolean
  #given = 0

  constructor({ commandsFromCalls = false }: { readonly commandsFromCalls?: boolean } = {}) {
    this.#commandsFromCalls = commandsFromCalls
  }

  get steps(): readonly Step[] {
    return this.#steps
  }

  /** Takes one event of any lease of the trial; returns the steps that are now complete, each once, in order. */
  add({ time, event }: Pick<LeaseEvent, 'time' | 'event'>): readonly Step[] {
    switch (event.type) {
      case 'model.call':
        this.#call(time, event)
        break
      case 'exec.start':
        this.#start(time, event)
        break
      case 'exec.end':
        this.#end(event)
        break
      case 'egress.denied':
        this.#deny(time, event)
        break
      case 'state':
        break
    }
    return this.#settled(false)
  }

  /** The agent phase is over: what is left, complete or not. */
  end(): readonly Step[] {
    return this.#settled(true)
  }

  /** How commands ended and what they put out, by the harness's own account: of lower trust than what we saw. */
  complete(account: readonly AccountedStep[]): void {
    for (const [index, { commands }] of account.entries())
      for (const [at, { command, returnCode, output }] of commands.entries()) {
        const ours = this.#steps[index]?.commands[at]
        if (ours === undefined || ours.command !== command || returnCode === null) continue
        const bytes = Buffer.from(output)
        ours.exit = { code: returnCode }
        ours.outputBytes = bytes.length
        ours.head = bytes.subarray(0, accountedBytes).toString()
        ours.tail = bytes.subarray(Math.max(0, bytes.length - accountedBytes)).toString()
      }
  }

  #call(time: string, call: EventOf<'model.call'>): void {
    // A refused or failed call is no step: the harness's own counts leave it out too.
    if (call.status < 200 || call.status > 299) return
    const step = this.#open(time)
    step.text = call.text
    step.tokens = {
      input: call.inputTokens,
      cachedInput: call.cachedInputTokens,
      output: call.outputTokens,
      reasoning: call.reasoningTokens,
    }
    step.costUsd = call.costUsd
    if (this.#commandsFromCalls) {
      step.commands = call.commands.map((command, index) => ({
        ...{ exec: `call-${step.step}-${index + 1}`, command, startedAt: time },
        ...{
          exit: 'unknown',
          cause: null,
          durationMs: null,
          outputBytes: null,
          head: '',
          tail: '',
        },
      }))
      return
    }
    this.#wanted.set(step, call.commands.length)
    this.#takeLater(step)
  }

  #open(time: string): Step {
    const step: Step = {
      step: this.#steps.length + 1,
      time,
      text: null,
      commands: [],
      tokens: null,
      costUsd: 0,
      denied: [],
    }
    this.#steps.push(step)
    return step
  }

  /** Commands that started after this call but arrived before it are its own. */
  #takeLater(step: Step): void {
    const before = this.#steps.at(-2)
    if (before === undefined || before.step <= this.#given) return
    if (before.tokens === null) return
    const later = before.commands.filter((command) => command.startedAt >= step.time)
    before.commands = before.commands.filter((command) => command.startedAt < step.time)
    step.commands.push(...later)
    for (const command of later) this.#byExec.set(command.exec, { step, command })
  }

  #start(time: string, start: EventOf<'exec.start'>): void {
    if (start.label?.startsWith(ownLabel)) {
      this.#ownExecs.add(start.exec)
      return
    }
    const withModel = this.#steps.some((step) => step.tokens !== null)
    const step = withModel
      ? (this.#steps.findLast((one) => one.time <= time && one.step > this.#given) ??
        this.#steps.at(-1))
      : this.#open(time)
    if (step === undefined) return
    const command: StepCommand = {
      exec: start.exec,
      command: commandText(start.argv),
      exit: null,
      cause: null,
      startedAt: time,
      durationMs: null,
      outputBytes: null,
      head: '',
      tail: '',
    }
    step.commands.push(command)
    this.#byExec.set(start.exec, { step, command })
    const early = this.#early.get(start.exec)
    if (early !== undefined) this.#end(early)
  }

  #end(end: EventOf<'exec.end'>): void {
    if (this.#ownExecs.has(end.exec)) return
    const found = this.#byExec.get(end.exec)
    if (found === undefined) {
      this.#early.set(end.exec, end)
      return
    }
    const { exit, cause, durationMs, outputBytes, head, tail } = end
    Object.assign(found.command, { exit, cause, durationMs, outputBytes, head, tail })
  }

  /** A denial belongs to the step under way; equal ones are counted. */
  #deny(time: string, { seq, protocol, target, reason }: EventOf<'egress.denied'>): void {
    const step = this.#steps.at(-1) ?? this.#open(time)
    const same = step.denied.find(
      (one) => one.protocol === protocol && one.target === target && one.reason === reason,
    )
    if (same !== undefined) same.count++
    else step.denied.push({ seq, protocol, target, reason, count: 1 })
  }

  #settled(all: boolean): readonly Step[] {
    const ready: Step[] = []
    for (const step of this.#steps.slice(this.#given)) {
      const behind = this.#steps.length - step.step
      const running = step.commands.some((command) => command.exit === null)
      const short = step.commands.length < (this.#wanted.get(step) ?? 0)
      const complete = behind >= 2 || (behind === 1 && !running && !short)
      if (!all && !complete) break
      ready.push(step)
      this.#given = step.step
    }
    return ready
  }
}

/** `bash -lc COMMAND` is how a harness runs a command: the last word is what the model wrote. */
function commandText(argv: readonly string[]): string {
  const [shell = '', flag = '', command] = argv
  if (argv.length === 3 && /^(.*\/)?(ba|da|)sh$/.test(shell) && /^-[a-z]*c$/.test(flag))
    return command ?? ''
  return argv
    .map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`))
    .join(' ')
}

export const stepLine = (step: Step): string => `${JSON.stringify(step)}\n`
