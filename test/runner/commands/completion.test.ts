/** The completion scripts, in a real shell. */
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'

const run = promisify(execFile)
const main = path.resolve(import.meta.dirname, '../../../runner/main.ts')
const completion = async (shell: string): Promise<string> =>
  (await run(process.execPath, ['--no-warnings', main, 'completion', shell])).stdout

t.test('bash offers the verbs, their verbs and their options', async (t) => {
  const script = await completion('bash')
  const offered = async (...words: string[]): Promise<string[]> => {
    const line = words.map((word) => `'${word}'`).join(' ')
    const asked = `${script}\nCOMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _closedbook; echo "\${COMPREPLY[@]}"`
    return (await run('bash', ['-c', asked])).stdout.trim().split(' ')
  }
  t.strictSame(await offered('closedbook', 'resu'), ['resume'])
  t.strictSame(await offered('closedbook', 'lease', ''), [
    'open',
    'list',
    'close',
    'help',
    '--help',
  ])
  t.strictSame(await offered('closedbook', '--json', 'run', '--harn'), ['--harness'])
  t.strictSame(await offered('closedbook', 'task', 'lint', '--no-'), ['--no-image'])
  t.strictSame(await offered('closedbook', 'nonsense-'), [''])
})

t.test('the other shells get every verb, and one that is not known is refused', async (t) => {
  const [zsh, fish] = [await completion('zsh'), await completion('fish')]
  for (const verb of ['qualify', 'attach', 'dashboard']) {
    t.match(zsh, verb)
    t.match(fish, `-a ${verb} -d`)
  }
  t.match(zsh, /^#compdef closedbook/)
  await t.rejects(completion('csh'), { code: 2, stderr: /Allowed choices are bash, zsh, fish/ })
})
