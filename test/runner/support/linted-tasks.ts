/** A task without a mistake, every mistake to make in its files with the finding that it earns, and what only looks like one. */
import type { Scratch } from './scratch.ts'

const toml = `schema_version = "1.4"
[task]
name = "org/sample"
[environment]
workdir = "/w"
[closedbook]
area = "public-api"
source = { kind = "own", ref = "r" }
[closedbook.functional]
command = "pytest --junitxml={results} /tests/functional"
expected = ["a::b"]
[closedbook.regression]
command = "pytest --junitxml={results} /tests/regression"
expected = ["a::c"]
`
const harbor = `version = "1.0"
[metadata]
category = "Data Processing"
[environment]
network_mode = "no-network"
`

export async function linted(scratch: Scratch, text = toml): Promise<string> {
  await scratch.write('task.toml', text)
  await scratch.write('instruction.md', 'Do the work.\n')
  await scratch.write('environment/Dockerfile', `FROM name@sha256:${'a'.repeat(64)}\n`)
  await scratch.write('tests/functional/test_a.py', 'def test_b(): assert 1\n')
  await scratch.write('tests/regression/test_a.py', 'def test_c(): assert 1\n')
  await scratch.write('tests/test.sh', '#!/bin/sh\npytest /tests\n', 0o755)
  await scratch.write('solution/solve.sh', '#!/bin/sh\ntrue\n', 0o755)
  return scratch.path
}

const dockerfile = (text: string) => ({ 'environment/Dockerfile': `FROM scratch\n${text}\n` })
const script = (text: string) => ({ 'tests/check.sh': `#!/bin/bash\n${text}\n` })
const compose = (text: string) => ({
  'environment/docker-compose.yaml': `services:\n  main:\n${text}`,
})

/** What is written over the sample; the finding, from its rule to its message. */
export const mistakes: readonly (readonly [
  string,
  Readonly<Record<string, string>>,
  RegExp,
  string[]?,
])[] = [
  [
    'a misspelt key of Harbor',
    { 'task.toml': toml.replace('workdir = "/w"', 'workdir = "/w"\nmemory_md = 1') },
    /^unknown-config-field task\.toml:6 .*did you mean memory_mb/,
  ],
  [
    'an unknown table',
    { 'task.toml': `${toml}[frobnicate]\nx = 1\n` },
    /^unknown-config-field task\.toml:15 frobnicate/,
  ],
  [
    'a misspelt key of ours',
    { 'task.toml': toml.replace('area =', 'aera =') },
    /^invalid-task-config task\.toml:7 .*aera/,
  ],
  [
    'a value of a wrong kind',
    { 'task.toml': toml.replace('"public-api"', '"Public API"') },
    /^invalid-task-config task\.toml:7 .*lower-case/,
  ],
  [
    'TOML that is none',
    { 'task.toml': 'a = = 1\n' },
    /^invalid-task-config task\.toml.*not valid TOML/,
  ],
  [
    'an empty instruction',
    { 'instruction.md': '<!-- canary GUID 1 -->\n' },
    /^invalid-task-files instruction\.md empty/,
  ],
  [
    'an agent that is root',
    { 'task.toml': `${toml}[agent]\nuser = "root"\n` },
    /^root-agent task\.toml:16/,
    ['root-agent'],
  ],
  ['a verifier that Harbor would share', { 'task.toml': harbor }, /^shared-verifier task\.toml/],
  [
    'artifacts over the logs',
    {
      'task.toml': `artifacts = ["/logs/verifier/x", "/w"]\n${harbor}[verifier]\nenvironment_mode = "separate"\n`,
    },
    /^artifact-log-overlap task\.toml:1/,
  ],
  [
    'artifacts over each other',
    { 'task.toml': `artifacts = ["/w/a", { source = "/w" }]\n${harbor}` },
    /^overlapping-artifacts task\.toml:1 artifacts\[1\] and artifacts\[0\]/,
  ],
  [
    'ignore rules where none are read',
    { 'environment/.harborignore': 'x\n' },
    /^unused-harborignore environment\/\.harborignore/,
  ],
  [
    'an image by tag',
    { 'environment/Dockerfile': 'FROM python:3.13-slim\n' },
    /^unpinned-image environment\/Dockerfile:1 FROM python:3\.13-slim/,
  ],
  [
    'a tag behind an argument',
    { 'environment/Dockerfile': 'ARG V=3.13\nFROM python:${V}\n' },
    /^unpinned-image environment\/Dockerfile:2 FROM python:3\.13/,
  ],
  [
    'a stage that copies from a tag',
    dockerfile('COPY --from=uv:0.9 /uv /bin/'),
    /^unpinned-image environment\/Dockerfile:2 COPY --from uv:0\.9/,
  ],
  [
    'an image by tag in task.toml',
    { 'task.toml': toml.replace('[environment]', '[environment]\ndocker_image = "python:3.13"') },
    /^unpinned-image task\.toml:5/,
  ],
  [
    'pip without a version',
    dockerfile('RUN set -e && \\\n  pip install --no-cache-dir pytest==8.0 requests'),
    /^unpinned-python-dependency environment\/Dockerfile:2 requests/,
  ],
  [
    'requirements without a version',
    { 'environment/requirements.txt': 'a==1\nb>=2\n' },
    /^unpinned-python-dependency environment\/requirements\.txt:2 b>=2/,
  ],
  [
    'tests that install with pip',
    script('pip install pytest==8.0'),
    /^verifier-runtime-install tests\/check\.sh:2 `pip install`/,
  ],
  [
    'tests that install with apt',
    script('if true; then apt-get update; fi'),
    /^verifier-runtime-install tests\/check\.sh:2 `apt-get update`/,
  ],
  [
    'tests that run uvx',
    script('uvx --with pytest==8.0 pytest'),
    /^verifier-runtime-install tests\/check\.sh:2 `uvx/,
  ],
  [
    'tests that pipe a script',
    script('curl -LsSf https://astral.sh/uv/install.sh | sh'),
    /^verifier-network-download tests\/check\.sh:2/,
  ],
  [
    'tests that clone',
    script('git clone https://github.com/a/b'),
    /^verifier-network-download tests\/check\.sh:2/,
  ],
  [
    'a test that asks a server',
    {
      'tests/functional/test_a.py':
        'import requests\n\n\ndef test_b():\n    assert requests.get("https://api.github.com/x").ok\n',
    },
    /^tests-need-network tests\/functional\/test_a\.py:5 speaks to api\.github\.com/,
  ],
  [
    'a test that reads from the Hub',
    {
      'tests/functional/test_a.py':
        'def test_b():\n    AutoTokenizer.from_pretrained("org/model")\n',
    },
    /^tests-need-network tests\/functional\/test_a\.py:2 reads from the Hub/,
  ],
  [
    'tests copied into the image',
    dockerfile('COPY ./tests/ /opt/'),
    /^agent-image-test-leak environment\/Dockerfile:2 COPY \.\/tests\//,
  ],
  [
    'the solution copied into the image',
    dockerfile('ADD ["solution/solve.sh", "/x"]'),
    /^agent-image-test-leak environment\/Dockerfile:2/,
  ],
  [
    'a privileged service',
    compose('    privileged: true\n'),
    /^compose-privileged environment\/docker-compose\.yaml:3/,
  ],
  [
    'a service with capabilities',
    compose('    cap_add: [SYS_ADMIN]\n'),
    /^compose-additional-capabilities .*SYS_ADMIN/,
  ],
  [
    'a mount that is written to',
    compose('    volumes: ["./data:/data"]\n'),
    /^compose-writable-bind-mount .*\.\/data/,
  ],
  [
    'a mount from the host',
    compose('    volumes: ["/var/run/docker.sock:/s:ro"]\n'),
    /^compose-external-bind-mount/,
  ],
  [
    'a mount that leaves the task',
    compose('    volumes: [{ type: bind, source: ../../x, target: /x, read_only: true }]\n'),
    /^compose-external-bind-mount/,
  ],
  ['a service by tag', compose('    image: redis:8\n'), /^unpinned-image .*redis:8/],
  [
    'a password in the Dockerfile',
    dockerfile('ENV DB_PASSWORD=hunter2hunter2'),
    /^baked-secret environment\/Dockerfile:2 ENV DB_PASSWORD/,
  ],
  [
    'a proxy in the Dockerfile',
    dockerfile('ENV https_proxy="http://198.51.100.1:3128"'),
    /^baked-proxy environment\/Dockerfile:2/,
  ],
  [
    'no regression suite',
    { 'task.toml': toml.slice(0, toml.indexOf('[closedbook.regression]')) },
    /^missing-regression-suite task\.toml:6/,
  ],
  [
    'a suite without expected ids',
    { 'task.toml': toml.replace('expected = ["a::b"]', '') },
    /^missing-expected-tests task\.toml:10 the functional suite/,
  ],
  [
    'a suite that stops early',
    { 'task.toml': toml.replace('pytest --junitxml', 'pytest -x --junitxml') },
    /^invalid-task-config task\.toml:10 .*stops at the first failure/,
  ],
  [
    'a suite that nothing guards',
    { 'task.toml': toml.replace('pytest --junitxml={results} /tests/functional', 'make check') },
    /^no-canaries task\.toml:10 the functional suite/,
  ],
  [
    'what is not said of the task',
    { 'task.toml': toml.replace('area = "public-api"\n', '') },
    /^missing-task-facts task\.toml:6 .*area/,
  ],
  [
    'several containers',
    compose('    image: scratch\n'),
    /^unsupported-feature environment\/docker-compose\.yaml/,
  ],
]

/** What looks like a mistake and is none. */
export const noMistakes: readonly (readonly [string, Readonly<Record<string, string>>])[] = [
  ['the sample itself', {}],
  [
    'an image of ours',
    {
      'environment/Dockerfile':
        'FROM closedbook/base:trixie AS build\nFROM build\nCOPY --from=build /a /b\n',
    },
  ],
  [
    'pinned and local packages',
    dockerfile(
      'RUN pip install "a[x]==1.2" ./pkg /w/b.whl -r requirements.txt && pip install -c limits.txt c',
    ),
  ],
  [
    'a download into the void',
    script(
      'curl -fsS -o /dev/null http://127.0.0.1:8000/health\necho "curl https://a.example.com"',
    ),
  ],
  ['an installer that stays offline', script('pip install --no-index --find-links /wheels pytest')],
  ['a here-document of another language', script("cat <<'END' >x.sh\napt-get install y\nEND")],
  [
    'tests on loopback',
    {
      'tests/functional/test_a.py':
        'def test_b():\n    requests.get("http://127.0.0.1:30000/health")\n',
    },
  ],
  [
    'words that look like keys',
    {
      'instruction.md':
        'A task-oriented sk-learn pipeline; set `API_KEY` to sk-your-key-goes-here-please-1234567.\n',
    },
  ],
  [
    'a rule that the task ignores',
    {
      'task.toml': `${toml.replace('workdir = "/w"', '')}[metadata.closedbook.lint]\nignore = ["missing-task-facts"]\n`,
    },
  ],
]
