/** What is read out of the texts of a task: places of keys, what a script would fetch, ignore files. Pure. */
import t from 'tap'
import { isLeftOut, leftOut, parseIgnore } from '../../../runner/task/harborignore.ts'
import { networkInstalls } from '../../../runner/task/network-install.ts'
import { lineOfKey } from '../../../runner/task/toml-lines.ts'
import type { TreeEntry } from '../../../runner/task/tree.ts'

void t.test('a key is found where it stands', (t) => {
  const text = `version = "1.0"
note = """
[environment]
os = "in a string"
"""
[environment]   # a comment
os = "linux"
env = { A = "1" }
"quoted.key" = 1

[ verifier . environment ]
docker.image = "x"

[[steps]]
name = "a"
`
  const rows: readonly (readonly [string, number | null])[] = [
    ['version', 1],
    ['environment', 6],
    ['environment.os', 7],
    ['environment.env.A', 8],
    ['environment.absent', 6],
    ['verifier.environment', 11],
    ['verifier.environment.docker.image', 12],
    ['verifier', 11],
    ['steps', 14],
    ['nowhere', null],
  ]
  for (const [key, line] of rows) t.equal(lineOfKey(text, key.split('.')), line, key)
  t.end()
})

void t.test('what a script would fetch is seen, and what it would not is let alone', (t) => {
  const fetches = [
    'apt-get update',
    'sudo apt install -y curl',
    'apt-get -qq -y install curl',
    'pip install pytest==8.4.1',
    'python3 -m pip install -q pytest',
    'x=1 && /usr/bin/pip3 install .',
    'uv pip install pytest',
    'uvx -p 3.13 -w pytest==8.4.1 pytest /tests',
    'uv run --with pytest pytest',
    'curl -LsSf https://example.org/install.sh | sh',
    'wget "http://example.org/x"',
    'npm ci',
    'npx jest',
    'git clone https://example.org/x.git',
    'cargo install ripgrep',
    'apk add --no-cache bash',
    'dnf -y install git',
    'conda install -y numpy',
    'pip \\\n  install pytest',
  ]
  const lets = [
    'pytest /tests',
    '# apt-get install x',
    'echo done # pip install x',
    'pip install --no-index --find-links /wheels pytest',
    'pip list',
    'curl http://localhost:8080/health',
    'curl -s http://127.0.0.1:30000/v1/models',
    'git diff && git status',
    'grep install apt.log',
    'uv run pytest',
    'python -m pytest',
    'npm test',
    "cat <<'EOF'\napt-get install x\nEOF\necho",
  ]
  for (const script of fetches) t.equal(networkInstalls(script).length, 1, script)
  for (const script of lets) t.strictSame(networkInstalls(script), [], script)
  t.match(networkInstalls('true\n\napt-get \\\n update\n'), [{ line: 3, what: 'apt' }])
  t.end()
})

void t.test('.harborignore has the meaning of .gitignore', (t) => {
  const entry = (path: string): TreeEntry => ({
    path,
    kind: path.endsWith('/') ? 'directory' : 'file',
    executable: false,
    sizeBytes: 0,
    sha256: '',
  })
  const tree = [
    'a.txt',
    'b.log',
    'build/',
    'build/x',
    'deep/',
    'deep/b.log',
    'deep/build/',
    'deep/build/y',
    'deep/keep.log',
    'f[1]',
    '#x',
  ]
  const entries = tree.map((path) => ({
    ...entry(`tests/${path}`),
    path: `tests/${path.replace(/\/$/, '')}`,
  }))
  const rows: readonly (readonly [string, string])[] = [
    ['*.log', 'b.log deep/b.log deep/keep.log'],
    ['/*.log', 'b.log'],
    ['*.log\n!keep.log', 'b.log deep/b.log'],
    ['build/', 'build build/x deep/build deep/build/y'],
    ['/build', 'build build/x'],
    ['deep/build', 'deep/build deep/build/y'],
    ['**/build', 'build build/x deep/build deep/build/y'],
    ['deep/**', 'deep/b.log deep/build deep/build/y deep/keep.log'],
    ['deep/\n!deep/keep.log', 'deep deep/b.log deep/build deep/build/y deep/keep.log'],
    ['?.txt', 'a.txt'],
    ['[!a].log', 'b.log deep/b.log'],
    ['f\\[1\\]', 'f[1]'],
    ['\\#x\n# comment\n\n', '#x'],
    ['a.txt   ', 'a.txt'],
  ]
  for (const [rules, expected] of rows) {
    const out = leftOut(entries, 'tests', (path) =>
      path === 'tests' ? parseIgnore(rules) : undefined,
    )
    const names = tree.map((path) => path.replace(/\/$/, '')).filter((path) => isLeftOut(out, path))
    t.equal(names.join(' '), expected, JSON.stringify(rules))
  }
  const nested = leftOut(entries, 'tests', (path) =>
    path === 'tests'
      ? parseIgnore('*.log')
      : path === 'tests/deep'
        ? parseIgnore('!/b.log')
        : undefined,
  )
  t.strictSame([...nested], ['b.log', 'deep/keep.log'], 'a file deeper down wins')
  t.end()
})
