/** Words for reading what a provider or a sandbox sent, of which nothing is taken for granted. */
import { isObject } from '../../policy/model-check.ts'

export type Json = Record<string, unknown>

export const objects = (value: unknown): Json[] =>
  Array.isArray(value) ? value.filter(isObject) : []

export const objectOr = (value: unknown): Json => (isObject(value) ? value : {})

/** A number of tokens; null where it is none. */
export const count = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null

/** What the assistant said and which commands it asked for. */
export interface Sayings {
  readonly text: string
  readonly commands: string[]
}

/** Cut for the event stream. */
export const sayings = (text: readonly string[], commands: readonly string[]): Sayings => ({
  text: text.join('\n').slice(0, 2000),
  commands: commands.slice(0, 64).map((command) => command.slice(0, 2000)),
})

/** One line for a call of a tool: its `command` where it has one, else its name and input. */
export function commandOf(name: unknown, given: unknown): string {
  const input = typeof given === 'string' ? given : JSON.stringify(given ?? '')
  try {
    const parsed: unknown = typeof given === 'string' ? JSON.parse(given) : given
    if (isObject(parsed) && typeof parsed['command'] === 'string') return parsed['command']
  } catch {
    // Not JSON: models do that; shown as it is.
  }
  return `${typeof name === 'string' ? name : 'unknown'} ${input}`
}
