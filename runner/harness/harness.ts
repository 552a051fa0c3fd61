/**
 * The harness of a configuration: what drives the model, or stands in for it. Written as one word or `kind:FILE`.
 * `noop` does nothing, `oracle` runs the task's solution, `script:FILE` runs a shell script as the agent inside the
 * task container, `mini-swe-agent` runs beside it.
 */
import { isAbsolute, resolve } from 'node:path'
import { RunnerError } from '../errors.ts'

export type Harness =
  | { readonly kind: 'mini-swe-agent' }
  | { readonly kind: 'noop' }
  | { readonly kind: 'oracle' }
  | { readonly kind: 'script'; readonly file: string }

export const harnessForms = 'mini-swe-agent, noop, oracle or script:FILE'

/** `baseDir` is what a relative FILE is relative to: the directory of the file that names it. */
export function parseHarness(text: string, baseDir: string): Harness {
  if (text === 'mini-swe-agent' || text === 'noop' || text === 'oracle') return { kind: text }
  const [kind, ...rest] = text.split(':')
  const file = rest.join(':')
  if (kind === 'script' && file !== '')
    return { kind: 'script', file: isAbsolute(file) ? file : resolve(baseDir, file) }
  const why =
    kind === 'script'
      ? 'names no file'
      : kind === 'command'
        ? 'is not supported by this version'
        : 'is unknown'
  throw new RunnerError(
    'config_invalid',
    'operator',
    `harness "${text}" ${why}; use ${harnessForms}`,
  )
}

export const harnessText = (harness: Harness): string =>
  harness.kind === 'script' ? `script:${harness.file}` : harness.kind

/** Whether a model takes part, so that a configuration must name one. */
export const needsModel = (harness: Harness): boolean => harness.kind === 'mini-swe-agent'
