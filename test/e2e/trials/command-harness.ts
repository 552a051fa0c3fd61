/** What the tests of a harness in a file share: recordings of a few turns, and a configuration that replays them. */
import path from 'node:path'
import type { RecordedCall } from '../../../daemon/protocol/recording.ts'
import type { Scratch } from '../../runner/support/scratch.ts'
import type { TestDaemon } from '../../support/daemon.ts'
import { openLeases, root } from './setup.ts'

export interface Turn {
  readonly text: string
  /** undefined: the last one. */
  readonly command?: string
}

const solve = `cat >>tally/__init__.py <<'END'


def tally(text):
    found = words(text)
    return sorted(((word, found.count(word)) for word in set(found)), key=lambda pair: (-pair[1], pair[0]))
END`

export const solving: readonly Turn[] = [
  { text: 'first, a look', command: 'ls; getent hosts nowhere.example || true' },
  { text: 'now the work', command: solve },
  { text: 'done' },
]

/** Long enough for a daemon to be killed and started meanwhile. */
export const waitingSolution: readonly Turn[] = [
  { text: 'wait', command: `${solve}\nfor n in $(seq 60); do echo $n; sleep 0.1; done` },
  { text: 'and look', command: 'tail -3 tally/__init__.py' },
  { text: 'done' },
]

export const recordingOf = (turns: readonly Turn[]): string =>
  turns.map((turn, n) => `${JSON.stringify(callOf(turn, n))}\n`).join('')

const callOf = ({ text, command }: Turn, n: number): RecordedCall => ({
  v: 1,
  n,
  api: 'openai.chat',
  request: { model: 'replay-model', assistantTurns: n },
  response: {
    status: 200,
    headers: { 'content-type': 'application/json' },
    body: {
      id: `chatcmpl-${n}`,
      object: 'chat.completion',
      model: 'replay-model',
      choices: [
        {
          index: 0,
          finish_reason: command === undefined ? 'stop' : 'tool_calls',
          message: {
            role: 'assistant',
            content: text,
            ...(command !== undefined && {
              tool_calls: [
                {
                  id: `call_${n}`,
                  type: 'function',
                  function: { name: 'bash', arguments: JSON.stringify({ command }) },
                },
              ],
            }),
          },
        },
      ],
      usage: { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 },
    },
  },
  latencyMs: 0,
})

/** A configuration file whose harness is the plain one and whose model replays this. */
export async function writeHarnessJob(
  scratch: Scratch,
  name: string,
  recording: string,
  file = path.join(root, 'test/fixtures/harness/plain.yaml'),
): Promise<string> {
  await scratch.write(`${name}/tally/1.jsonl`, recording)
  return scratch.write(
    `${name}.json`,
    JSON.stringify({
      name,
      harness: `command:${file}`,
      model: {
        name: 'replay-model',
        upstream: { kind: 'replay', recordings: name },
        price: { inputPerMillionUsd: 1, cachedInputPerMillionUsd: 1, outputPerMillionUsd: 1 },
      },
    }),
  )
}

/** Sandboxes that are still open. */
export const leftOpen = async (daemon: TestDaemon): Promise<string[]> =>
  (await openLeases(daemon.stateDir)).map(({ lease }) => lease)
