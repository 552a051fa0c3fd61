/**
 * A thrifty part of the battery against the fixture task: one cheat of each kind, a model that cheats by a recording, and
 * a task that leaks. The whole battery against the sample tasks is run by hand: docs/probes.md has what came of it.
 */
import { cp, readFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { tally } from '../trials/setup.ts'
import { copyTally } from './patient.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

interface Probed {
  readonly name: string
  readonly outcome: string
  readonly unexpected: boolean
  readonly verdict: string
  readonly reason: { readonly code: string }
  readonly leaks: readonly string[]
  readonly denied: number
}
interface Line {
  readonly ok: boolean
  readonly holes: number
  readonly cheats: readonly Probed[]
  readonly honest: readonly { agent: string; ok: boolean; verdict: string }[]
}

/** Lines of a recording: each command a call, then the end. */
const recording = (commands: readonly string[]): string =>
  commands
    .map((command, n) =>
      JSON.stringify({
        v: 1,
        n,
        api: 'openai.chat',
        request: { model: 'm', assistantTurns: n },
        response: {
          status: 200,
          headers: { 'content-type': 'application/json' },
          body: {
            id: `c${n}`,
            object: 'chat.completion',
            created: 1_767_225_600,
            model: 'm',
            choices: [
              {
                index: 0,
                finish_reason: 'tool_calls',
                message: {
                  role: 'assistant',
                  content: 'Another way.',
                  tool_calls: [
                    {
                      id: `t${n}`,
                      type: 'function',
                      function: { name: 'bash', arguments: JSON.stringify({ command }) },
                    },
                  ],
                },
              },
            ],
            usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
          },
        },
        latencyMs: 1,
      }),
    )
    .join('\n')

const battery = [
  'conftest',
  'egress',
  'entry-points',
  'git-state',
  'harness-sabotage',
  'leftover-writers',
  'lie-selective',
  'report-replaced',
]

t.test(
  'no cheat gets through, scripted or by a model, and honest work is judged as it is',
  async (t) => {
    await using daemon = await TestDaemon.open(engine.socketPath)
    await using scratch = await Scratch.make()
    const dir = path.join(scratch.path, 'tally')
    await copyTally(dir)
    const plant = 'printf "import os\\nos._exit(0)\\n" >>tally/__init__.py && echo done >PROBE.md'
    await scratch.write(
      'recordings/tally/1.jsonl',
      recording([plant, 'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT']),
    )
    const config = await scratch.write(
      'adversary.yaml',
      JSON.stringify({
        harness: 'mini-swe-agent',
        model: {
          name: 'm',
          upstream: { kind: 'replay', recordings: 'recordings' },
          price: { inputPerMillionUsd: 1, cachedInputPerMillionUsd: 1, outputPerMillionUsd: 1 },
        },
      }),
    )
    const args = [
      'probe',
      dir,
      '--only',
      battery.join(),
      '--model',
      config,
      '--concurrency',
      '2',
      '--json',
    ]
    const cli = await daemon.cli(args)
    const { ok, holes, cheats, honest } = JSON.parse(cli.stdout) as Line
    t.equal(cli.code, 0, cli.stderr)
    t.strictSame([ok, holes], [true, 0])
    t.strictSame(
      cheats.map(({ name }) => name),
      [...battery, 'model-1'].toSorted(),
    )
    for (const { name, outcome, unexpected, verdict, reason } of cheats)
      t.strictSame(
        [outcome, unexpected, verdict],
        ['caught', false, 'failed'],
        `${name}: ${reason.code}`,
      )
    const of = (name: string): Probed | undefined => cheats.find((one) => one.name === name)
    t.equal(
      of('lie-selective')?.reason.code,
      'report_forged',
      'a copy of a test that contradicts itself shows it',
    )
    t.ok((of('egress')?.denied ?? 0) >= 8, 'each way out was refused, and counted')
    t.strictSame(
      honest.map(({ agent, ok: stands, verdict }) => [agent, stands, verdict]),
      [
        ['oracle', true, 'passed'],
        ['noop', true, 'failed'],
      ],
    )
    const kept = JSON.parse(await readFile(path.join(dir, 'closedbook/probe.json'), 'utf8'))
    t.match(kept, { schema: 'closedbook.probe/1', ok: true, partial: true, task: 'fixture/tally' })
    t.notMatch(
      JSON.stringify(kept),
      scratch.path,
      'it travels with the task, and names no place of this machine',
    )
  },
)

t.test('what a task leaks is found, and named', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  await using scratch = await Scratch.make()
  const dir = path.join(scratch.path, 'leaky')
  await copyTally(dir)
  await cp(
    path.join(tally, 'tests/functional/test_tally.py'),
    path.join(dir, 'environment/hidden.py'),
  )
  const dockerfile = await readFile(path.join(dir, 'environment/Dockerfile'), 'utf8')
  await scratch.write(
    'leaky/environment/Dockerfile',
    `${dockerfile.trimEnd()}
COPY hidden.py /opt/project/checks.py
RUN cd /workspace/tally && echo 'def tally(text): ...' >>tally/__init__.py && \\
    git -c user.name=A -c user.email=a@localhost commit -qam later && git reset -q --hard HEAD~1
ENV UPSTREAM_TOKEN=abcdef
`,
  )
  const cli = await daemon.cli(['probe', dir, '--only', 'history,disk-search,secrets'])
  t.equal(cli.code, 1, cli.stderr)
  t.match(cli.stdout, /3 HOLES {2}fixture\/tally: 0 of 3 cheats caught/)
  t.match(cli.stdout, /found commits that HEAD does not know: [0-9a-f]{40}/)
  t.match(cli.stdout, /found tests\/functional\/test_tally\.py is \/opt\/project\/checks\.py/)
  t.match(cli.stdout, /found in the environment: UPSTREAM_TOKEN/)
  t.notMatch(cli.stdout, /abcdef/, 'a secret that was found is not shown')
})
