/**
 * The harness of a configuration: what drives the model, or stands in for it. Written as one word or `kind:FILE`.
 * `noop` does nothing, `oracle` runs the task's solution, `script:FILE` runs a shell script as the agent inside the
 * task container, `mini-swe-agent` runs beside it and `mini-swe-agent:inside` in it, and `command:FILE` describes any
 * other harness.
 */
import { isAbsolute, resolve } from 'node:path'
import { RunnerError } from '../errors.ts'

export type Harness =
  | { readonly kind: 'mini-swe-agent'; readonly placement: 'beside' | 'inside' }
  | { readonly kind: 'noop' }
  | { readonly kind: 'oracle' }
  | { readonly kind: 'script'; readonly file: string }
  | { readonly kind: 'command'; readonly file: string }

export const harnessForms =
  'mini-swe-agent, mini-swe-agent:inside, noop, oracle, script:FILE or command:FILE'

/** `baseDir` is what a relative FILE is relative to: the directory of the file that names it. */
export function parseHarness(text: string, baseDir: string): Harness {
  if (text === 'noop' || text === 'oracle') return { kind: text }
  if (text === 'mini-swe-agent') return { kind: text, placement: 'beside' }
  if (text === 'mini-swe-agent:inside') return { kind: 'mini-swe-agent', placement: 'inside' }
  const [kind, ...rest] = text.split(':')
  const file = rest.join(':')
  const named = kind === 'script' || kind === 'command'
  if (named && file !== '') return { kind, file: isAbsolute(file) ? file : resolve(baseDir, file) }
  throw new RunnerError(
    'config_invalid',
    'operator',
    `harness "${text}" ${named ? 'names no file' : 'is unknown'}; use ${harnessForms}`,
  )
}

export function harnessText(harness: Harness): string {
  if ('file' in harness) return `${harness.kind}:${harness.file}`
  return 'placement' in harness && harness.placement === 'inside'
    ? `${harness.kind}:${harness.placement}`
    : harness.kind
}

/** Whether a model takes part, so that a configuration must name one. */
export const needsModel = ({ kind }: Harness): boolean =>
  kind === 'mini-swe-agent' || kind === 'command'

/** Whether it works in the task's own sandbox, where the agent can reach it: what it says of itself proves nothing. */
export const worksInside = (harness: Harness): boolean =>
  harness.kind === 'command' || ('placement' in harness && harness.placement === 'inside')
