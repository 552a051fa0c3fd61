/**
 * The sandbox's side of one request. Errors are said in the words that clients of the Hub read: X-Error-Code decides
 * which exception a client raises, X-Error-Message and the body what it prints, and X-HF-Warning reaches people where a
 * client swallows the rest. No answer ever has a Location, a Link or a word of Xet.
 */
import type { ServerResponse } from 'node:http'
import type { Reason } from '../../../policy/decision.ts'
import { printable } from '../../../policy/printable.ts'

export type Headers = Readonly<Record<string, string | number>>

const maxMessage = 600
/** Git LFS prints the message of an answer of this type, and of no other. */
const lfsType = 'application/vnd.git-lfs+json'

export class Reply {
  readonly response: ServerResponse
  readonly head: boolean
  status = 0
  bytes = 0

  constructor(response: ServerResponse, method: string) {
    this.response = response
    this.head = method === 'HEAD'
    response.on('error', () => {})
  }

  get started(): boolean {
    return this.response.headersSent
  }

  json(status: number, value: unknown, headers: Headers = {}): void {
    this.#whole(status, JSON.stringify(value), {
      'content-type': 'application/json; charset=utf-8',
      ...headers,
    })
  }

  empty(status: number, headers: Headers = {}): void {
    this.#whole(status, '', headers)
  }

  /** `code` is the Hub's own word, where the client should take the answer as the Hub's. */
  error(
    status: number,
    message: string,
    {
      reason,
      code,
      ...rest
    }: { reason?: Reason; code?: string | null; headers?: Headers; warn?: boolean } = {},
  ): void {
    const words = printable(
      `closedbook: ${reason === undefined ? '' : `${reason}: `}${message}`,
      maxMessage,
    )
    const lfs = this.response.req.headers.accept?.includes(lfsType) === true
    this.#whole(status, lfs ? JSON.stringify({ message: words }) : `${words}\n`, {
      'content-type': lfs ? lfsType : 'text/plain; charset=utf-8',
      'x-error-message': words,
      ...(code == null ? {} : { 'x-error-code': printable(code, 64) }),
      ...(reason === undefined ? {} : { 'x-closedbook-reason': reason }),
      // Shown once a topic by each process of a client.
      ...(rest.warn === true
        ? { 'x-hf-warning': `closedbook-${reason ?? 'error'}; ${words}` }
        : {}),
      ...rest.headers,
    })
  }

  /** The head of a file; its bytes follow unless only the head was asked for. */
  begin(status: number, headers: Headers): void {
    this.status = status
    this.response.writeHead(status, headers)
    if (this.head) this.response.end()
  }

  #whole(status: number, body: string, headers: Headers): void {
    const bytes = Buffer.from(body)
    this.status = status
    this.response.writeHead(status, { ...headers, 'content-length': bytes.length })
    if (this.head) this.response.end()
    else {
      this.bytes += bytes.length
      this.response.end(bytes)
    }
  }
}
