/**
 * The files of a new task: small, whole, and already a task that lints clean and qualifies (no-op fails the functional
 * suite, oracle passes both). Authors replace the project, the tests and the solution and keep the shape.
 */

export interface TemplateOptions {
  readonly name: string
  readonly area: string
  readonly hardware: 'cpu' | 'h100'
  /** The image to start from; one of ours, so that it needs no network. */
  readonly image: string
}

export interface TemplateFile {
  readonly path: string
  readonly text: string
  readonly executable?: boolean
}

const pytest = (suite: string): string =>
  `python3 -P -m pytest -q -p no:cacheprovider -c /dev/null --rootdir=/tests --tb=short --junitxml={results} /tests/${suite}`

export const templateFiles = (options: TemplateOptions): readonly TemplateFile[] => [
  { path: 'task.toml', text: taskToml(options) },
  { path: 'instruction.md', text: instruction },
  { path: 'environment/Dockerfile', text: dockerfile(options) },
  { path: 'environment/project/README.md', text: readme },
  { path: 'environment/project/words.py', text: words },
  { path: 'solution/solve.sh', text: solve, executable: true },
  { path: 'tests/functional/test_title.py', text: functional },
  { path: 'tests/regression/test_count.py', text: regression },
  { path: 'tests/expected/functional.txt', text: expected('functional.test_title', functional) },
  { path: 'tests/expected/regression.txt', text: expected('regression.test_count', regression) },
  { path: 'tests/test.sh', text: testScript, executable: true },
]

const taskToml = ({ name, area, hardware }: TemplateOptions): string => `schema_version = "1.4"

[task]
name = "${name}"
version = "0.1.0"
description = "One line for people; the agent never sees it"

[environment]
workdir = "/workspace/project"
cpus = 1
memory_mb = 2048
network_mode = "no-network"

[agent]
timeout_sec = 1800.0

[verifier]
timeout_sec = 120.0

[closedbook]
hardware = "${hardware}"
workdir = "/workspace/project"
verify = "patch"
source = { kind = "own", ref = "why this task exists, and where it comes from" }
area = "${area}"

# Hidden tests of what was asked for: without the work each of them must fail.
[closedbook.functional]
command = "${pytest('functional')}"
results = "junit"
expected_file = "tests/expected/functional.txt"

# Hidden tests of what must stay as it is: they pass before the work and after it.
[closedbook.regression]
command = "${pytest('regression')}"
results = "junit"
expected_file = "tests/expected/regression.txt"
`

const instruction = `# Titles

The project in \`/workspace/project\` counts words. Add a function \`title(text)\` to \`words.py\`:

- It returns the text with the first letter of each word in upper case and the rest of the word as it was.
- Words are what whitespace separates; the whitespace itself stays as it was.
- The empty text gives the empty text.

\`count\` must go on as it does.
`

const dockerfile = ({
  image,
  hardware,
}: TemplateOptions): string => `# Python 3.13, git and pytest. Or any image by digest: name@sha256:…${hardware === 'h100' ? '\n# A task for a GPU starts from a CUDA image by digest; pytest and git must be in it.' : ''}
FROM ${image}
COPY project /workspace/project
WORKDIR /workspace/project
# One commit of the tree, and nothing else that an agent could look up.
RUN git init --quiet --initial-branch=main --template= \\
 && git add --all \\
 && GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z \\
    git -c user.name=Author -c user.email=author@example.com commit --quiet --message 'The project' \\
 && rm -rf .git/logs .git/COMMIT_EDITMSG
`

const readme = `# Words

\`words.count(text)\` counts the words of a text.
`

const words = `"""Words of a text."""


def count(text):
    """How many words a text has; words are what whitespace separates."""
    return len(text.split())
`

const solve = `#!/bin/sh
# The oracle: does what the instruction asks for, in the workdir. Never seen by an agent.
set -eu
cat >>words.py <<'END'


def title(text):
    """The text with each word's first letter in upper case."""
    letters = []
    inside_word = False
    for letter in text:
        letters.append(letter if inside_word else letter.upper())
        inside_word = not letter.isspace()
    return "".join(letters)
END
`

const functional = `"""What was asked for. Imports inside of the tests: without the work each must fail by itself."""

import pytest


def title(text):
    import words

    return words.title(text)


@pytest.fixture(autouse=True)
def project(monkeypatch):
    monkeypatch.syspath_prepend("/workspace/project")


def test_each_word_begins_with_a_capital():
    assert title("a tale of two cities") == "A Tale Of Two Cities"


def test_the_rest_of_a_word_stays_as_it_was():
    assert title("the iPhone of McDonald") == "The IPhone Of McDonald"


def test_whitespace_stays_as_it_was():
    assert title("  one\\ttwo\\n\\nthree ") == "  One\\tTwo\\n\\nThree "


def test_the_empty_text_is_empty():
    assert title("") == ""
`

const regression = `"""What must stay as it is."""

import pytest


@pytest.fixture(autouse=True)
def project(monkeypatch):
    monkeypatch.syspath_prepend("/workspace/project")


def test_words_are_counted():
    import words

    assert words.count("a tale of two cities") == 5


def test_nothing_has_no_words():
    import words

    assert words.count(" \\n") == 0
`

const expected = (module: string, text: string): string =>
  [...text.matchAll(/^def (test_\w+)/gm)]
    .map((match) => `${module}::${match[1]}\n`)
    .toSorted()
    .join('')

const testScript = `#!/bin/bash
# Harbor's entry: the reward is 1 when both suites pass, else 0. Closedbook runs each suite by itself, see task.toml.
set -u
mkdir -p /logs/verifier
cd /workspace/project || exit 1
reward=1
for suite in functional regression; do
  python3 -P -m pytest -q -p no:cacheprovider -c /dev/null --rootdir=/tests --tb=short \\
    --junitxml="/logs/verifier/$suite.xml" "/tests/$suite" || reward=0
done
echo "$reward" > /logs/verifier/reward.txt
`
