/**
 * The escape table of docs/threat-model.md, from the catalogue. Run as a program it writes the page; the test of the
 * catalogue checks that it is current.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { attempts, otherRows, techniques, type Attempt } from './catalogue.ts'

const page = fileURLToPath(new URL('../../docs/threat-model.md', import.meta.url))
const between = /(<!-- escape table: [^\n]* -->\n)[^]*?(\n<!-- end of the escape table -->)/

const reasonsOf = ({ audit }: Attempt): string[] =>
  audit.map((event) => /^(?:\+ |\d+x )?(?:close )?\S+ (\S+) /.exec(event)?.[1] ?? event)

const unique = <T>(values: readonly T[]): T[] => [...new Set(values)]
const cell = (text: string): string => text.replaceAll('|', '\\|')

export function threatTable(): string {
  const facts = { hostAddresses: ['172.17.0.1', '192.0.2.1'], hostPort: 1, commit: 'c', nonce: 'n' }
  const all = attempts(facts)
  const lines = [
    '| # | technique | tried | by | reason in the audit |',
    '| --- | --- | --- | --- | --- |',
  ]
  for (const [row, technique] of techniques) {
    const mine = all.filter((attempt) => attempt.row === row)
    const other = otherRows.filter((one) => one.row === row)
    const tried = [...mine.map(({ what }) => what), ...other.map(({ what }) => what)]
    const by = [...mine.map(({ client }) => client), ...other.map(({ how }) => how)]
    const reasons = unique(mine.flatMap(reasonsOf)).map((reason) => `\`${reason}\``)
    if (mine.some(({ audit }) => audit.length === 0)) reasons.push('refused, nothing to record')
    reasons.push(...other.map(({ result }) => result))
    lines.push(
      `| ${row} | ${cell(technique)} | ${cell(unique(tried).join('; '))} | ${unique(by).join(', ')} | ${cell(reasons.join(', '))} |`,
    )
  }
  return lines.join('\n')
}

/** Columns are padded by the formatter, so that only the words are compared. */
const words = (text: string): string => text.replace(/ +/g, ' ').replace(/-{3,}/g, '---').trim()

export async function pageIsCurrent(): Promise<boolean> {
  const found = between.exec(await readFile(page, 'utf8'))
  return found !== null && words(found[0]).includes(words(threatTable()))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = await readFile(page, 'utf8')
  await writeFile(
    page,
    text.replace(between, (_, start: string, end: string) => `${start}\n${threatTable()}\n${end}`),
  )
}
