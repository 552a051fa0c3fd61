/**
 * What a lease's model calls used and what they may use. Limits are checked before each call: a call that starts
 * within its budget is finished and paid for, so a budget can be overrun by one call and no more. For that, calls
 * wait their turn where a budget is set: one at a time for tokens and dollars, which only the answer tells; for a
 * number of calls, as many at once as are left.
 */
import type { ModelGatewaySpec, Usage } from '../protocol/lease.ts'
import { addTokens, costOf, noTokens, type Tokens } from '../protocol/model-cost.ts'
import type { Fault } from './relay.ts'

/** Whether a call may start; `spent` says of what, for people. */
export type Admission =
  | { readonly kind: 'started' }
  | { readonly kind: 'spent'; readonly words: string }
  | { readonly kind: 'shut' }
  | { readonly kind: 'gone' }

interface Waiter {
  readonly settle: (admission: Admission) => void
}

export class Meter {
  readonly #price: ModelGatewaySpec['price']
  readonly #budget: ModelGatewaySpec['budget']
  readonly #waiting = new Set<Waiter>()
  #tokens: Tokens = noTokens
  #calls = 0
  #refused = 0
  #failed = 0
  #fault: Fault | null = null
  #budgetSpent = false
  #running = 0
  #shut = false
  readonly #idle = Promise.withResolvers<void>()

  constructor(spec: Pick<ModelGatewaySpec, 'price' | 'budget'>) {
    this.#price = spec.price
    this.#budget = spec.budget
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
  async admit({ signal }: { signal: AbortSignal }): Promise<Admission> {
    const { promise, resolve } = Promise.withResolvers<Admission>()
    const waiter: Waiter = { settle: resolve }
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

  /** Ends a started call that was answered. */
  answered(tokens: Tokens): void {
    this.#tokens = addTokens(this.#tokens, tokens)
    this.#calls += 1
    this.#fault = null
    this.#end()
  }

  /** Ends a started call that got no good answer. */
  failed(fault: Fault | null): void {
    this.#failed += 1
    if (fault !== null) this.#fault = fault
    this.#end()
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
    if (this.#running > 0) await this.#idle.promise
  }

  costOf(tokens: Tokens): number {
    return costOf(tokens, this.#price)
  }

  #end(): void {
    this.#running -= 1
    if (this.#shut && this.#running === 0) this.#idle.resolve()
    this.#pump()
  }

  #pump(): void {
    for (const waiter of this.#waiting) {
      const admission = this.#next()
      if (admission === null) return
      this.#waiting.delete(waiter)
      if (admission.kind === 'started') this.#running += 1
      if (admission.kind === 'spent') this.#budgetSpent = true
      waiter.settle(admission)
    }
  }

  #next(): Admission | null {
    if (this.#shut) return { kind: 'shut' }
    const words = this.#spent()
    if (words !== null) return { kind: 'spent', words }
    return this.#running < this.#slots() ? { kind: 'started' } : null
  }

  #slots(): number {
    const { calls, outputTokens, totalTokens, costUsd } = this.#budget
    if (outputTokens !== undefined || totalTokens !== undefined || costUsd !== undefined) return 1
    return calls === undefined ? Infinity : calls - this.#calls
  }

  #spent(): string | null {
    const { inputTokens, outputTokens } = this.#tokens
    const used = {
      calls: this.#calls,
      outputTokens,
      totalTokens: inputTokens + outputTokens,
      costUsd: costOf(this.#tokens, this.#price),
    }
    for (const key of ['calls', 'outputTokens', 'totalTokens', 'costUsd'] as const) {
      const limit = this.#budget[key]
      if (limit !== undefined && used[key] >= limit) return `${used[key]} of ${limit} ${key}`
    }
    return null
  }
}
