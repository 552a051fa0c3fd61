/**
 * Canary tests: tests that must fail, with ordinary assertions and ordinary names, different in every execution. The
 * code under test runs in the tests' own process and can rewrite what the reporter says; it can't tell these from the
 * task's own tests by name, and a report in which one of them passed or is absent was forged. They are written for
 * pytest; other runners have none, which the prepared suite says.
 */

export interface Canary {
  /** Random among a few hundred thousand; the id of its report entry ends with it. */
  readonly test: string
  /** Where it was put, relative to the tests' directory. */
  readonly file: string
  /** It stands among the task's own tests of that file, and is absent where the file can't be imported. */
  readonly shared: boolean
  /** It is a copy of one of them that contradicts itself, and uses what that one uses. */
  readonly copy?: boolean
}

/** Whether an entry of a report is of this canary; a test with parameters has an entry for each. */
export const isOf = ({ test }: Pick<Canary, 'test'>, id: string): boolean =>
  id.endsWith(test) || id.includes(`${test}[`)

/** A number from 0 up to and without `limit`. */
export type Random = (limit: number) => number

export interface CanaryCode {
  readonly test: string
  readonly source: string
}

const verbs =
  'add align append keep drop merge split order group trim count cache parse read write zip join pick skip map'
const kinds = 'first last empty nested repeated partial leading trailing mixed single open plain'
const things =
  'spans items names keys rows parts chunks tokens fields lines entries groups pairs paths'
const conditions =
  'once twice in_order by_key at_end at_start when_equal when_short on_overlap again'

function pick(list: string, random: Random): string {
  const words = list.split(' ')
  return words[random(words.length)] ?? 'item'
}

interface Template {
  readonly imports: string
  body(name: string, random: Random): string
}

/** Each asserts something that is false for every input it can draw. */
const templates: readonly Template[] = [
  {
    imports: '',
    body: (name, random) => {
      const values = Array.from({ length: 4 }, () => random(40) + 1)
      const total = values.reduce((sum, value) => sum + value, 0)
      return `def ${name}():\n    values = [${values.join(', ')}]\n    assert sum(values) == ${total + 1 + random(9)}\n`
    },
  },
  {
    imports: '',
    body: (name, random) => {
      const start = random(20) + 1
      const values = [start + 7, start, start + 3]
      return `def ${name}():\n    rows = [${values.join(', ')}]\n    assert sorted(rows) == [${start}, ${start + 7}, ${start + 3}]\n`
    },
  },
  {
    imports: 'from collections import Counter\n',
    body: (name, random) => {
      const word = pick(things, random)
      return `def ${name}():\n    counts = Counter("${word}")\n    assert sum(counts.values()) == ${word.length + 1 + random(5)}\n`
    },
  },
  {
    imports: 'import json\n',
    body: (name, random) => {
      const value = random(900) + 10
      return `def ${name}():\n    text = json.dumps({"value": ${value}, "done": True})\n    assert json.loads(text)["value"] == ${value + 1 + random(50)}\n`
    },
  },
  {
    imports: '',
    body: (name, random) => {
      const parts = [pick(kinds, random), pick(things, random), pick(verbs, random)]
      return `def ${name}():\n    path = "/".join(${JSON.stringify(parts)})\n    assert path.split("/")[1:] == ${JSON.stringify([parts[0], parts[2]])}\n`
    },
  },
]

export function makeCanary(random: Random): CanaryCode & { readonly imports: string } {
  const test = `test_${pick(verbs, random)}_${pick(kinds, random)}_${pick(things, random)}_${pick(conditions, random)}`
  const template = templates[random(templates.length)] as Template
  return { test, imports: template.imports, source: template.body(test, random) }
}

/** A file of its own, whose name sorts before or after all of `siblings`. */
export function canaryFileName(
  side: 'early' | 'late',
  siblings: readonly string[],
  random: Random,
): string {
  const fits = (name: string): boolean =>
    siblings.every((sibling) => (side === 'early' ? name < sibling : name > sibling))
  for (let tries = 0; tries < 200; tries++) {
    const name = `test_${pick(verbs, random)}_${pick(things, random)}.py`
    if (fits(name) && !siblings.includes(name)) return name
  }
  const word = `${pick(verbs, random)}_${pick(things, random)}`
  const starts = side === 'early' ? ['a', 'a_', '0_', '00_'] : ['z', 'zz_', 'zzz_', 'zzzz_']
  const names = starts.map((start) => `test_${start}${word}.py`)
  return names.find(fits) ?? names.find((name) => !siblings.includes(name)) ?? `test_${word}_.py`
}
