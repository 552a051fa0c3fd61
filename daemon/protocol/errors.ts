/**
 * Errors of the product, shared by daemon and runner. Each has a stable `code`, a `blame` that decides what happens
 * to a trial, and a message that says what to do next. A denial by policy is a Decision, never an error.
 */
export type Blame = 'operator' | 'caller' | 'task' | 'agent' | 'infra'

export abstract class ClosedbookError extends Error {
  readonly code: string
  readonly blame: Blame
  /** Facts for programs; never secrets. */
  readonly facts: Readonly<Record<string, unknown>>

  constructor(
    code: string,
    blame: Blame,
    message: string,
    options: { cause?: unknown; facts?: Record<string, unknown> } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = new.target.name
    this.code = code
    this.blame = blame
    this.facts = options.facts ?? {}
  }
}

/** What the other side of the API answered instead of what was asked, or that it answered nothing. */
export class RemoteError extends ClosedbookError {}
