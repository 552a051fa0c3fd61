import t from 'tap'
import { readEgressFile, readSteps } from '../../../runner/trial/evidence.ts'
import { stepLine, type Step } from '../../../runner/step-log.ts'
import { Scratch } from '../support/scratch.ts'

const time = '2026-01-01T00:00:00.000Z'
const step = (number: number, text: string): Step => ({
  step: number,
  time,
  text,
  commands: [],
  tokens: null,
  costUsd: 0,
  denied: [],
})
const all = async <T>(items: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}

t.test(
  'a step that is still being written is not read, and a long one is read whole',
  async (t) => {
    await using scratch = await Scratch.make()
    const steps = [step(1, 'é'.repeat(200_000)), step(2, 'line\u2028separator')]
    const third = stepLine(step(3, 'half'))
    await scratch.write('steps.jsonl', steps.map(stepLine).join('') + third.slice(0, 20))
    t.strictSame(await all(readSteps(scratch.path)), steps)
    await scratch.write('steps.jsonl', steps.map(stepLine).join('') + third)
    t.equal((await all(readSteps(scratch.path))).length, 3)
  },
)

t.test('events of executions come in the order of the executions, also of the tenth', async (t) => {
  await using scratch = await Scratch.make()
  const names = ['x1-aaaa', 'x2-bbbb', 'x10-cccc']
  for (const [index, name] of names.entries())
    await scratch.write(
      `executions/${name}/egress.jsonl`,
      `${JSON.stringify({
        ...{ seq: 1, time, lease: name, trial: 't', kind: 'census', protocol: 'tcp', host: null },
        ...{ address: '198.51.100.7', port: index + 1, action: 'deny', reason: 'direct_tcp' },
        ...{ count: 1, bytesUp: 0, bytesDown: 0 },
      })}\n`,
    )
  t.strictSame(
    (await all(readEgressFile(scratch.path))).map(({ lease }) => lease),
    names,
  )
  t.strictSame(await all(readEgressFile(`${scratch.path}/none`)), [])
})
