/** The pages of docs/ against the code that they speak of: what is listed there is what there is. */
import { execFile } from 'node:child_process'
import { access, glob, readFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { statusByCode } from '../../daemon/protocol/api.ts'
import { frameType } from '../../daemon/protocol/exec-frames.ts'
import { auditEventSchema } from '../../policy/audit-event.ts'
import { reasons } from '../../policy/decision.ts'
import { exitCodeMeanings } from '../../runner/exit-codes.ts'
import { resultSchema } from '../../runner/result.ts'

const run = promisify(execFile)
const root = path.resolve(import.meta.dirname, '../..')
const page = (name: string): Promise<string> => readFile(path.join(root, name), 'utf8')

/** First cells of the rows of all tables, without their marks. */
const firstCells = (text: string): string[] =>
  [...text.matchAll(/^\| (.+?) *(?<!\\)\|/gm)].map(([, cell = '']) => cell)

t.test('the configuration page is what the schemas give', async (t) => {
  const script = path.join(root, 'docs/generate-configuration.ts')
  const { stdout } = await run(process.execPath, ['--no-warnings', script], {
    env: { ...process.env, CLOSEDBOOK_STATE_DIR: '/somewhere/else' },
  })
  t.equal(await page('docs/configuration.md'), stdout, 'npm run docs writes it')
})

t.test('every reason and every field of an audit event is explained', async (t) => {
  const explained = new Set(
    firstCells(await page('docs/policy.md')).map((cell) => cell.replaceAll('`', '')),
  )
  for (const name of [...reasons, ...Object.keys(auditEventSchema.shape)])
    t.ok(explained.has(name), name)
})

t.test('the exit statuses of the manual are those of the command', async (t) => {
  const rows = [...(await page('docs/operations.md')).matchAll(/^\| (\d+) +\| (.+?) +\|$/gm)]
  t.strictSame(
    rows.map(([, code, meaning]) => [Number(code), meaning]),
    exitCodeMeanings.map(([code, meaning]) => [code, meaning.replace(/^(.*?)\brun:/, '$1`run`:')]),
  )
})

t.test('the protocol page has every route, frame, error code and field of a result', async (t) => {
  const text = await page('docs/protocol.md')
  const api = await page('daemon/protocol/api.ts')
  const routes = [...api.matchAll(/^ \* {3}([A-Z]+) +(\/v1\/[^\s?]*)/gm)]
  t.ok(routes.length > 20)
  for (const [, method, url] of routes) t.match(text, `\`${method} ${url}`, `${method} ${url}`)
  for (const [name, number] of Object.entries(frameType)) {
    const frame = name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()
    t.match(text, new RegExp(`\\| \`${frame}\` +\\| ${number} `), frame)
  }
  for (const code of Object.keys(statusByCode)) t.match(text, `\`${code}\``, code)
  const fields = text.slice(text.indexOf('field of `result.json`'))
  for (const field of Object.keys(resultSchema.shape))
    t.match(fields, new RegExp(`[\`., ]${field}\\b`), field)
})

t.test('every link leads to a file, and every heading that it names is there', async (t) => {
  const slug = (heading: string): string =>
    heading
      .toLowerCase()
      .replace(/[^\w\s-]/g, '')
      .trim()
      .replaceAll(' ', '-')
  const pages = ['README.md', 'CHANGELOG.md']
  for await (const file of glob('docs/**/*.md', { cwd: root })) pages.push(file)
  let links = 0
  for (const from of pages) {
    const text = await page(from)
    for (const [, target = ''] of text.matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      links += 1
      const [file = '', anchor] = target.split('#')
      const to = file === '' ? from : path.join(path.dirname(from), file)
      const found = await access(path.join(root, to)).then(
        () => true,
        () => false,
      )
      t.ok(found, `${from} → ${target}`)
      if (!found || anchor === undefined) continue
      const headings = [...(await page(to)).matchAll(/^#+ (.*)$/gm)].map(([, text = '']) =>
        slug(text),
      )
      t.ok(headings.includes(anchor), `${from} → ${target}: one of ${headings.join(', ')}`)
    }
  }
  t.ok(links > 20)
})

t.test('every test that the threat model names exists', async (t) => {
  const text = await page('docs/threat-model.md')
  const named = [
    ...text.matchAll(/`((?:daemon|e2e|escape|images|policy|runner)\/[\w/-]+)`(?:: "([^"]+)")?/g),
  ]
  let sentences = 0
  for (const [, file, sentence] of named) {
    if (file?.includes('.') === true) continue
    const source = await page(`test/${file}.test.ts`).catch(() => null)
    t.ok(source !== null, `test/${file}.test.ts`)
    if (sentence === undefined) continue
    sentences += 1
    t.match(source, sentence, sentence)
  }
  t.ok(sentences > 10)
})
