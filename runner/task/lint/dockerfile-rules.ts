/** Dockerfiles of a task: what they start from, what they copy, and what they leave in the image's settings. */
import { imageTags } from '../../../images/build.ts'
import { checkLine } from './command-rules.ts'
import type { Findings } from './finding.ts'
import { proxyIn, secretInSetting, secretsIn } from './secrets.ts'
import { commandsOf, logicalLines } from './shell-text.ts'

const ours: ReadonlySet<string> = new Set(Object.values(imageTags))
const digest = /^(?:[^\s@]+@)?sha256:[0-9a-f]{64}$/i

/** A tag moves; our own images are built from pins. */
export const isPinned = (reference: string): boolean =>
  reference === 'scratch' || ours.has(reference) || digest.test(reference)

export function checkDockerfile(
  findings: Findings,
  file: string,
  text: string,
  { agent }: { agent: boolean },
): void {
  const stages = new Set<string>()
  const defaults = new Map<string, string>()
  let from = 0
  for (const { line, text: logical } of logicalLines(text)) {
    const [, instruction = '', rest = ''] = /^\s*(\S+)\s+(.*)$/s.exec(logical) ?? []
    const verb = instruction.toUpperCase()
    const flags = /^(?:--\S+\s+)+/.exec(rest)?.[0] ?? ''
    const value = rest.slice(flags.length)
    const words = wordsOf(value)
    if (verb === 'ARG' && from === 0)
      for (const word of words) {
        const [name = '', ...given] = word.split('=')
        if (given.length > 0) defaults.set(name, given.join('='))
      }
    if (verb === 'FROM') {
      from += 1
      const image = fill(words[0] ?? '', defaults)
      if (!stages.has(image.toLowerCase())) pinned(findings, file, line, 'FROM', image)
      if (/^as$/i.test(words[1] ?? '')) stages.add((words[2] ?? '').toLowerCase())
    }
    const copiedFrom = /--(?:from=|mount=\S*?from=)([^,\s]+)/.exec(flags)?.[1]
    if (copiedFrom !== undefined && !/^\d+$/.test(copiedFrom)) {
      const image = fill(copiedFrom, defaults)
      if (!stages.has(image.toLowerCase())) pinned(findings, file, line, `${verb} --from`, image)
    }
    if (verb === 'RUN') checkLine(findings, file, line, execForm(value) ?? value, 'image')
    if ((verb === 'COPY' || verb === 'ADD') && agent && copiedFrom === undefined)
      checkCopy(findings, file, line, verb, words.slice(0, -1))
    if (verb === 'ENV' || verb === 'ARG' || verb === 'LABEL')
      checkSettings(findings, file, line, verb, words)
    for (const found of secretsIn(logical))
      findings.add('baked-secret', file, `${found.kind} ${found.shown}: ${takeAway}`, line)
  }
  if (from === 0)
    findings.add('invalid-task-files', file, 'has no FROM: start it from an image by digest', null)
}

const takeAway =
  'whatever a build is told stays in the image and its history; take it away, and revoke it if it was real'

function pinned(
  findings: Findings,
  file: string,
  line: number,
  where: string,
  image: string,
): void {
  if (image === '' || image.includes('$') || isPinned(image)) return
  findings.add(
    'unpinned-image',
    file,
    `${where} ${image}: a tag moves; write ${image.replace(/@.*$/, '')}@sha256:…, or start from one of ${[...ours].join(', ')}`,
    line,
  )
}

function checkCopy(
  findings: Findings,
  file: string,
  line: number,
  verb: string,
  sources: readonly string[],
): void {
  for (const source of sources) {
    const path = source.replace(/^(?:\.\/)+/, '').replace(/\/+$/, '')
    const hidden = /(?:^|\/)(?:solution|tests?)(?:\/|$)/.test(path) && !/^https?:/.test(path)
    const script = /(?:^|\/)(?:solve|test)\.sh$/.test(path)
    if (hidden || script)
      findings.add(
        'agent-image-test-leak',
        file,
        `${verb} ${source} puts tests or the solution where the agent can read them; leave it out of the image`,
        line,
      )
  }
}

function checkSettings(
  findings: Findings,
  file: string,
  line: number,
  verb: string,
  words: readonly string[],
): void {
  const old = verb === 'ENV' && words.length > 1 && !(words[0] ?? '').includes('=')
  const pairs = old
    ? [[words[0] ?? '', words.slice(1).join(' ')] as const]
    : words.map((word) => {
        const equals = word.indexOf('=')
        return equals === -1
          ? ([word, ''] as const)
          : ([word.slice(0, equals), word.slice(equals + 1)] as const)
      })
  for (const [name, value] of pairs) {
    if (secretInSetting(name, value))
      findings.add('baked-secret', file, `${verb} ${name} has a value: ${takeAway}`, line)
    if (verb !== 'LABEL' && proxyIn(name, value))
      findings.add(
        'baked-proxy',
        file,
        `${verb} ${name} names a proxy of the build host; give it as a build argument, which Docker keeps out of the image`,
        line,
      )
  }
}

function wordsOf(value: string): readonly string[] {
  const exec = jsonWords(value)
  if (exec !== null) return exec
  return commandsOf(value.replaceAll(/[;&|()]/g, ' '), { keepAssignments: true }).flatMap(
    ({ words }) => words,
  )
}

function jsonWords(value: string): readonly string[] | null {
  if (!value.trim().startsWith('[')) return null
  try {
    const parsed: unknown = JSON.parse(value)
    return Array.isArray(parsed) ? parsed.map(String) : null
  } catch {
    return null
  }
}

const execForm = (value: string): string | null => jsonWords(value)?.join(' ') ?? null

const fill = (text: string, defaults: ReadonlyMap<string, string>): string =>
  text.replace(
    /\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))/g,
    (whole, braced: string | undefined, fallback: string | undefined, bare: string | undefined) =>
      defaults.get(braced ?? bare ?? '') ?? fallback ?? whole,
  )
