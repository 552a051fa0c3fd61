/**
 * What a lease's model calls used and what they may use. A call reserves what it may take at most (the bytes of its
 * request as input, the output limit that it names) and starts when that fits beside what is used and what the running
 * calls hold; its answer settles the difference. A call that doesn't fit, or names no limit, waits until it is alone:
 * it starts as long as anything is left, and is finished and paid for. So a budget can be overrun by one call and no
 * more, and calls that are well within it run side by side.
 */
import type { ModelGatewaySpec, Usage } from '../protocol/lease.ts'
import { addTokens, costOf, noTokens, type Tokens } from '../protocol/model-cost.ts'
import type { PastCalls } from './past-calls.ts'
import type { Fault } from './relay.ts'

/** What a call may take. */
export interface Claim {
  readonly inputTokens: number
  /** null: the call doesn't say. */
  readonly outputTokens: number | null
  /** Takes nothing of the budget, whatever it says: counting tokens. */
  readonly free: boolean
}

/** Whether a call may start; `spent` says of what, for people. Who holds a claim must tell its end. */
export type Admission =
  | { readonly kind: 'started'; readonly claim: Claim }
  | { readonly kind: 'spent'; readonly words: string }
  | { readonly kind: 'shut' }
  | { readonly kind: 'gone' }

interface Waiter {
  readonly claim: Claim
  readonly settle: (admission: Admission) => void
}

interface Amounts {
  readonly calls: number
  readonly outputTokens: number
  readonly totalTokens: number
  readonly costUsd: number
}

const budgetKeys = ['calls', 'outputTokens', 'totalTokens', 'costUsd'] as const

export class Meter {
  readonly #price: ModelGatewaySpec['price']
  readonly #budget: ModelGatewaySpec['budget']
  readonly #waiting = new Set<Waiter>()
  readonly #held = new Set<Claim>()
  #tokens: Tokens = noTokens
  #calls = 0
  #refused = 0
  #failed = 0
  #fault: Fault | null = null
  #budgetSpent = false
  #shut = false
  readonly #idle = Promise.withResolvers<void>()

  constructor(
    spec: Pick<ModelGatewaySpec, 'price' | 'budget'>,
    past: Pick<PastCalls, 'tokens' | 'calls'> | null = null,
  ) {
    this.#price = spec.price
    this.#budget = spec.budget
    if (past === null) return
    this.#tokens = past.tokens
    this.#calls = past.calls
  }

  get calls(): number {
    return this.#calls
  }

  usage(): Usage {
    return {
      ...this.#tokens,
      calls: this.#calls,
      refusedCalls: this.#refused,
      failedCalls: this.#failed,
      costUsd: costOf(this.#tokens, this.#price),
      fault: this.#fault,
      budgetSpent: this.#budgetSpent,
    }
  }

  /** Resolves when the call may start or is refused; `signal` is the client's patience. */
  async admit(claim: Claim, { signal }: { signal: AbortSignal }): Promise<Admission> {
    const { promise, resolve } = Promise.withResolvers<Admission>()
    // An object of its own for each call, since claims are told apart by identity.
    const waiter: Waiter = { claim: { ...claim }, settle: resolve }
    const leave = (): void => {
      if (this.#waiting.delete(waiter)) resolve({ kind: 'gone' })
    }
    if (signal.aborted) return { kind: 'gone' }
    signal.addEventListener('abort', leave, { once: true })
    this.#waiting.add(waiter)
    this.#pump()
    const admission = await promise
    signal.removeEventListener('abort', leave)
    return admission
  }

  /** Ends a call that was answered. */
  answered(claim: Claim, tokens: Tokens): void {
    if (!claim.free) {
      this.#tokens = addTokens(this.#tokens, tokens)
      this.#calls += 1
      this.#fault = null
    }
    this.#end(claim)
  }

  /** Ends a call that got no good answer. */
  failed(claim: Claim, fault: Fault | null): void {
    this.#failed += 1
    if (fault !== null) this.#fault = fault
    this.#end(claim)
  }

  /** The gateway itself can't go on. */
  broken(message: string): void {
    this.#fault = { code: 'gateway_error', message, status: null }
  }

  refused(): void {
    this.#refused += 1
  }

  /** No call starts any more; resolves when the started ones have ended. */
  async shut(): Promise<void> {
    this.#shut = true
    this.#pump()
    if (this.#held.size > 0) await this.#idle.promise
  }

  costOf(tokens: Tokens): number {
    return costOf(tokens, this.#price)
  }

  #end(claim: Claim): void {
    this.#held.delete(claim)
    if (this.#shut && this.#held.size === 0) this.#idle.resolve()
    this.#pump()
  }

  /** In the order in which they came, but for free calls, which wait for nobody. */
  #pump(): void {
    let stuck = false
    for (const waiter of this.#waiting) {
      const admission = this.#next(waiter.claim, stuck)
      if (admission === null) {
        stuck = true
        continue
      }
      this.#waiting.delete(waiter)
      if (admission.kind === 'started') this.#held.add(admission.claim)
      if (admission.kind === 'spent') this.#budgetSpent = true
      waiter.settle(admission)
    }
  }

  #next(claim: Claim, stuck: boolean): Admission | null {
    if (this.#shut) return { kind: 'shut' }
    const words = this.#spent()
    if (words !== null) return { kind: 'spent', words }
    return claim.free || (!stuck && this.#fits(claim)) ? { kind: 'started', claim } : null
  }

  #fits(claim: Claim): boolean {
    const held = [...this.#held].filter(({ free }) => !free)
    if (held.length === 0) return true
    const used = this.#used()
    const claims = [...held, claim].map((one) => this.#atMost(one))
    return budgetKeys.every((key) => {
      const limit = this.#budget[key]
      return limit === undefined || claims.reduce((sum, one) => sum + one[key], used[key]) <= limit
    })
  }

  #atMost({ inputTokens, outputTokens }: Claim): Amounts {
    const { inputPerMillionUsd: input, cacheWriteInputPerMillionUsd: written = input } = this.#price
    const output = outputTokens ?? Infinity
    return {
      calls: 1,
      outputTokens: output,
      totalTokens: inputTokens + output,
      costUsd:
        outputTokens === null
          ? Infinity
          : costOf(
              { inputTokens, cachedInputTokens: 0, outputTokens },
              { ...this.#price, inputPerMillionUsd: Math.max(input, written) },
            ),
    }
  }

  #used(): Amounts {
    const { inputTokens, outputTokens } = this.#tokens
    return {
      calls: this.#calls,
      outputTokens,
      totalTokens: inputTokens + outputTokens,
      costUsd: costOf(this.#tokens, this.#price),
    }
  }

  #spent(): string | null {
    const used = this.#used()
    for (const key of budgetKeys) {
      const limit = this.#budget[key]
      if (limit !== undefined && used[key] >= limit) return `${used[key]} of ${limit} ${key}`
    }
    return null
  }
}
