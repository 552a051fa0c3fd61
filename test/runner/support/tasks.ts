/** A whole task to be bent, and every way to bend it that must be refused, with the message it earns. */
import { execFileSync } from 'node:child_process'
import { mkdir, rm, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Scratch } from './scratch.ts'

export const image = `name@sha256:${'a'.repeat(64)}`
const closedbook = `[closedbook]
area = "public-api"
[closedbook.functional]
command = "pytest /tests/functional"
[closedbook.regression]
command = "pytest /tests/regression"
timeout_sec = 30
`
export const toml = `schema_version = "1.4"
[task]
name = "org/sample"
[environment]
workdir = "/workspace"
${closedbook}`

export async function sample(scratch: Scratch, text = toml): Promise<string> {
  await scratch.write('task.toml', text)
  await scratch.write('instruction.md', 'Do the work.\n')
  await scratch.write('environment/Dockerfile', 'FROM scratch\n')
  await scratch.write('tests/functional/test_a.py', 'def test_a(): pass\n')
  await scratch.write('tests/test.sh', '#!/bin/sh\n', 0o755)
  await scratch.write('solution/solve.sh', '#!/bin/sh\n', 0o755)
  return scratch.path
}

type Bend = (dir: string, scratch: Scratch) => Promise<unknown>
const write =
  (name: string, content: string | Uint8Array): Bend =>
  async (_dir, scratch) =>
    scratch.write(name, content)
const replaced = (from: string, to: string) => write('task.toml', toml.replace(from, to))

/** What is wrong; how; the message; the code where it is not task_invalid. */
export const badTasks: readonly (readonly [string, Bend, RegExp, string?])[] = [
  [
    'no task.toml',
    (dir) => rm(join(dir, 'task.toml')),
    /task\.toml: missing; a task directory holds/,
  ],
  ['broken TOML', write('task.toml', 'a = = 1'), /task\.toml: not valid TOML/],
  [
    'no instruction',
    (dir) => rm(join(dir, 'instruction.md')),
    /instruction\.md: missing; write into it/,
  ],
  ['an empty instruction', write('instruction.md', ' \n'), /instruction\.md: empty; write into it/],
  [
    'an instruction that is a canary only',
    write('instruction.md', '<!-- canary GUID 1 -->\n'),
    /instruction\.md: empty/,
  ],
  [
    'an instruction in Latin-1',
    write('instruction.md', Buffer.from([0x66, 0xfc])),
    /not UTF-8; save it/,
  ],
  ['an instruction with NUL', write('instruction.md', 'a\0b'), /NUL byte; remove it/],
  [
    'no tests',
    (dir) => rm(join(dir, 'tests'), { recursive: true }),
    /tests: missing or empty; put the hidden tests/,
  ],
  [
    'empty tests',
    async (dir) => {
      await rm(join(dir, 'tests'), { recursive: true })
      await mkdir(join(dir, 'tests/functional'), { recursive: true })
    },
    /tests: missing or empty/,
  ],
  [
    'neither image nor Dockerfile',
    (dir) => rm(join(dir, 'environment'), { recursive: true }),
    /closedbook\.image: no image: set it to "name@sha256:…", or add environment\/Dockerfile/,
  ],
  [
    'a tag',
    replaced('[closedbook]', '[closedbook]\nimage = "python:3.13"'),
    /"python:3\.13" is not pinned; write it as/,
  ],
  [
    'a tag as Harbor has it',
    replaced('[environment]', '[environment]\ndocker_image = "python:3.13"'),
    /environment\.docker_image: "python:3\.13" is not pinned/,
  ],
  [
    'files that a prebuilt image never gets',
    async (dir, scratch) => {
      await rm(join(dir, 'environment/Dockerfile'))
      await scratch.write('environment/data.bin', 'x')
      await scratch.write(
        'task.toml',
        toml.replace('[closedbook]', `[closedbook]\nimage = "${image}"`),
      )
    },
    /environment\/data\.bin would never reach it/,
  ],
  [
    'an unknown key of ours',
    replaced('area =', 'aera ='),
    /unknown key "aera" in closedbook; remove it or correct/,
  ],
  [
    'an unknown key of a suite',
    replaced('timeout_sec = 30', 'timeout = 30'),
    /unknown key "timeout" in closedbook\.regression/,
  ],
  [
    'another kind of hardware',
    replaced('[closedbook]', '[closedbook]\nhardware = "a100"'),
    /closedbook\.hardware: must be cpu or h100/,
  ],
  [
    'a relative workdir',
    replaced('"/workspace"', '"workspace"'),
    /environment\.workdir: must be an absolute path/,
  ],
  [
    'a short commit',
    replaced('[closedbook]', '[closedbook]\nbase_commit = "abc123"'),
    /closedbook\.base_commit: must be a full commit id/,
  ],
  [
    'no functional suite',
    replaced('[closedbook.functional]\ncommand = "pytest /tests/functional"', ''),
    /closedbook\.functional: /,
  ],
  [
    'a branch of a model repository',
    write('task.toml', `${toml}[[closedbook.huggingface]]\nrepo = "a/b"\nrevision = "main"\n`),
    /closedbook\.huggingface\[0\]\.revision: must be a commit of 40 hex digits/,
  ],
  [
    'a variable of the host',
    replaced('[environment]', '[environment]\nenv = { TOKEN = "${HF_TOKEN}" }'),
    /environment\.env\.TOKEN: .*asks for a variable of the host.*write the value/,
  ],
  [
    'a size nobody can read',
    replaced('[environment]', '[environment]\nmemory = "lots"'),
    /environment\.memory: "lots" is not a size; write "512M" or "2G"/,
  ],
  [
    'an artifact task without artifacts',
    replaced('[closedbook]', '[closedbook]\nverify = "artifacts"'),
    /verify "artifacts" needs at least one path/,
  ],
  [
    'a test listed twice',
    replaced('timeout_sec = 30', 'expected = ["a", "b", "a"]'),
    /closedbook\.regression\.expected: "a" is listed twice; remove one/,
  ],
  [
    'a list of tests that is not there',
    replaced('timeout_sec = 30', 'expected_file = "none.txt"'),
    /expected_file: can't read none\.txt \(ENOENT\); it is relative to the task directory/,
  ],
  [
    'a link out of the directory',
    (dir) => symlink('../../etc/passwd', join(dir, 'tests/leak')),
    /tests\/leak: it is a link to "\.\.\/\.\.\/etc\/passwd", outside the task directory; replace the link by a copy/,
  ],
  [
    'an absolute link',
    (dir) => symlink('/etc/passwd', join(dir, 'tests/leak')),
    /outside the task directory/,
  ],
  ['a link to nothing', (dir) => symlink('gone', join(dir, 'tests/leak')), /which isn't there/],
  ['a link to itself', (dir) => symlink('loop', join(dir, 'tests/loop')), /which isn't there/],
  [
    'a link through a link out of the directory',
    async (dir) => {
      await symlink('..', join(dir, 'tests/up'))
      await symlink('up/../..', join(dir, 'tests/out'))
    },
    /outside the task directory/,
  ],
  [
    'a pipe',
    async (dir) => execFileSync('mkfifo', [join(dir, 'tests/pipe')]),
    /tests\/pipe: it is a socket, pipe or device/,
  ],
  // Harbor's features that a sealed trial of one container can't honour
  [
    'several steps',
    replaced('[task]', '[[steps]]\nname = "one"\n[task]'),
    /steps: tasks of several steps are not supported; make each/,
    'task_unsupported',
  ],
  [
    'compose',
    write('environment/docker-compose.yaml', 'services: {}'),
    /docker-compose\.yaml:1: compose: .*one sealed container/,
    'task_unsupported',
  ],
  [
    'Windows',
    replaced('[environment]', '[environment]\nos = "windows"'),
    /environment\.os: "windows" containers are not supported/,
    'task_unsupported',
  ],
  [
    'a TPU',
    replaced('[environment]', '[environment]\ntpu = { type = "v5", topology = "1x1" }'),
    /environment\.tpu: /,
    'task_unsupported',
  ],
  [
    'MCP servers',
    replaced('[environment]', '[environment]\nmcp_servers = [{ name = "x" }]'),
    /environment\.mcp_servers: .*nothing else/,
    'task_unsupported',
  ],
  [
    'two GPUs',
    replaced('[environment]', '[environment]\ngpus = 2'),
    /environment\.gpus: 2 GPUs/,
    'task_unsupported',
  ],
  [
    'hosts of its own',
    replaced('[environment]', '[environment]\nallowed_hosts = ["a.example"]'),
    /environment\.allowed_hosts: asks for hosts of its own \(a\.example\): a task may not open hosts/,
    'task_unsupported',
  ],
  [
    'a verifier image',
    write('tests/Dockerfile', 'FROM x'),
    /verifier\.environment: /,
    'task_unsupported',
  ],
  [
    'a prior trajectory',
    write('trajectory.json', '{}'),
    /trajectory\.json:1: trajectory: /,
    'task_unsupported',
  ],
]
