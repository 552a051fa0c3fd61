import t from 'tap'
import { decideModelRequest } from '../../policy/model-request.ts'

const base = { model: 'm-1', messages: [{ role: 'user', content: 'hi' }] }

void t.test(
  'a parameter that the configuration sets may be repeated or left out, not changed',
  (t) => {
    const spec = { model: 'm-1', parameters: { temperature: 0, thinking: { type: 'x', n: 1 } } }
    const table: [object, 'allow' | 'deny', string][] = [
      [{}, 'allow', 'left out'],
      [{ temperature: null }, 'allow', 'null is as good as absent'],
      [{ temperature: 0, thinking: { n: 1, type: 'x' } }, 'allow', 'the same, keys in any order'],
      [{ temperature: 1 }, 'deny', 'another value'],
      [{ thinking: { type: 'x', n: 2 } }, 'deny', 'another value deep inside'],
      [{ top_p: 0.5 }, 'allow', 'what nobody pinned'],
    ]
    for (const [fields, action, why] of table)
      t.equal(decideModelRequest(spec, { ...base, ...fields }).action, action, why)
    t.match(decideModelRequest(spec, { ...base, temperature: 1 }), {
      reason: 'body_field_denied',
      message: 'temperature is pinned to 0',
    })
    t.end()
  },
)
