/** A task so small that what is measured is ours: one file in a repository, one shell test in each suite. */
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'

const files: Readonly<Record<string, string>> = {
  'task.toml': `schema_version = "1.4"
[task]
name = "closedbook/trivial"
[environment]
cpus = 1
memory_mb = 256
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 60.0
[closedbook]
hardware = "cpu"
workdir = "/workspace"
verify = "patch"
area = "public-api"
[closedbook.functional]
command = "sh /tests/exists.sh answer.txt {results}"
results = "tap"
[closedbook.regression]
command = "sh /tests/exists.sh readme.txt {results}"
results = "tap"
`,
  'instruction.md': 'Write the answer to answer.txt.\n',
  'environment/Dockerfile': `FROM closedbook/base:trixie
RUN mkdir /workspace && cd /workspace && echo hello > readme.txt && git init -q . \\
 && git add . && git -c user.name=closedbook -c user.email=none@localhost commit -q -m base
WORKDIR /workspace
`,
  'solution/solve.sh': '#!/bin/bash\necho 42 > answer.txt\n',
  'tests/exists.sh': `echo "1..1" > "$2"
if [ -e "$1" ]; then echo "ok 1 - $1" >> "$2"; else echo "not ok 1 - $1" >> "$2"; exit 1; fi
`,
  'tests/test.sh': '#!/bin/sh\nexit 1\n',
}

export async function writeTrivialTask(directory: string): Promise<string> {
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(directory, name)
    await mkdir(path.dirname(file), { recursive: true })
    await writeFile(file, text)
    if (name.endsWith('.sh')) await chmod(file, 0o755)
  }
  return directory
}
