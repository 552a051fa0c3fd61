/**
 * A cheat: a shell file under cheats/ that tries one family of tricks as an agent would, in any task. Its header says
 * what it tries and how it must end:
 *   # tries: one line for people
 *   # must: tests_failed report_forged      codes of reasons; any other end is worth a look
 *   # needs: needles                        (optional) hashes of the hidden files, to search for
 * Before it comes prelude.sh. It says what it did by lines `probe:tried|note|leak|skipped TEXT`.
 */
import { readdir, readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { RunnerError } from '../errors.ts'
import { sha256 } from '../qualify/document.ts'
import type { Needles } from './needles.ts'

export interface Cheat {
  readonly name: string
  readonly tries: string
  /** Codes of the reasons that it may fail with. */
  readonly must: readonly string[]
  readonly needsNeedles: boolean
  readonly body: string
  /** Of its own text, without the prelude. */
  readonly digest: string
}

const folder = fileURLToPath(new URL('cheats', import.meta.url))
const preludeFile = fileURLToPath(new URL('prelude.sh', import.meta.url))

/** All of them by name; `only` names some, or fails by name. */
export async function readCheats(only: readonly string[] | null = null): Promise<Cheat[]> {
  const names = (await readdir(folder))
    .filter((name) => name.endsWith('.sh'))
    .map((name) => name.slice(0, -'.sh'.length))
    .toSorted()
  const unknown = (only ?? []).filter((name) => !names.includes(name))
  if (unknown.length > 0)
    throw new RunnerError(
      'usage',
      'operator',
      `--only: no probe is called ${unknown.join(', ')}; there are ${names.join(', ')}`,
    )
  const chosen = names.filter((name) => only === null || only.includes(name))
  return Promise.all(
    chosen.map(async (name) => parseCheat(name, await readFile(`${folder}/${name}.sh`, 'utf8'))),
  )
}

export function parseCheat(name: string, text: string): Cheat {
  const header = (key: string): string | null =>
    new RegExp(`^# ${key}: *(.+)$`, 'm').exec(text)?.[1]?.trim() ?? null
  const tries = header('tries')
  const must = header('must')
  if (tries === null || must === null)
    throw new RunnerError(
      'config_invalid',
      'operator',
      `probe ${name}: its header lacks "# tries:" or "# must:"`,
    )
  return {
    name,
    tries,
    must: must.split(/\s+/),
    needsNeedles: header('needs') === 'needles',
    body: text,
    digest: sha256(text),
  }
}

/** The script that the agent runs: prelude, cheat, and what it is to search for as a Python literal. */
export async function composeScript(cheat: Cheat, needles: Needles): Promise<string> {
  const prelude = await readFile(preludeFile, 'utf8')
  const body = cheat.needsNeedles
    ? cheat.body.replace(
        /^(.*<<'END'.*)$/m,
        (line) => `${line}\nNEEDLES = ${JSON.stringify(needles)}`,
      )
    : cheat.body
  return `${prelude}\n${body}`
}

export interface Said {
  readonly tried: readonly string[]
  readonly notes: readonly string[]
  readonly leaks: readonly string[]
  readonly skipped: string | null
}

/** What a cheat said in its output. Bounded: a cheat may print much. */
export function readSaid(log: string): Said {
  const of = (kind: string): string[] => [
    ...new Set(
      [...log.matchAll(new RegExp(`^probe:${kind} (.*)$`, 'gm'))].map((match) =>
        (match[1] ?? '').trim().slice(0, 300),
      ),
    ),
  ]
  return {
    tried: of('tried').slice(0, 200),
    notes: of('note').slice(0, 20),
    leaks: of('leak').slice(0, 50),
    skipped: of('skipped')[0] ?? null,
  }
}
