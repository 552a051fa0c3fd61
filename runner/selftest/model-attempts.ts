/**
 * What is asked of the model gateway and must be refused by it. Its provider's address is one that nothing answers on,
 * and no request here gets as far: nothing is sent, so nothing is billed.
 */
import type { Reason } from '../../policy/decision.ts'
import type { Attempt } from './attempt.ts'
import { answerOf, send } from './shell.ts'

export const modelName = 'selftest-model'
const port = 8400
const messages = [{ role: 'user', content: 'x' }]

export function modelAttempts(key: string): Attempt[] {
  const post = (
    name: string,
    status: number,
    reason: Reason,
    body: unknown,
    path = '/v1/chat/completions',
  ): Attempt => {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    const head = `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\nConnection: close\r\n\r\n`
    return {
      name: `model: ${name}`,
      command: `${send(head + text, '127.0.0.1', port)} | ${answerOf}`,
      expected: `${status} ${reason}`,
      meets: ({ output }) => output === `${status} ${reason}`,
      audit: {
        reason,
        of: (event) => event.protocol === 'model' && event.reason === reason,
      },
    }
  }
  const chat = (more: object): object => ({ model: modelName, messages, ...more })
  return [
    post('a search at the provider', 404, 'tool_denied', chat({ tools: [{ type: 'web_search' }] })),
    post(
      'an image that lies elsewhere',
      404,
      'remote_url_denied',
      chat({
        messages: [
          {
            role: 'user',
            content: [{ type: 'image_url', image_url: { url: 'https://selftest.example/x.png' } }],
          },
        ],
      }),
    ),
    post('another model', 404, 'model_denied', { model: 'another', messages }),
    post('a conversation that is kept', 404, 'body_field_denied', chat({ store: true })),
    post('what is no JSON', 404, 'body_invalid', '{'),
    post('the files of an account', 403, 'path_denied', {}, '/v1/files'),
    {
      name: 'model: the key, in any environment',
      command: `$b grep -l -e ${key} /proc/[0-9]*/environ 2>/dev/null; true`,
      expected: 'not in the sandbox',
      meets: ({ output }) => output === '',
      audit: null,
    },
  ]
}
