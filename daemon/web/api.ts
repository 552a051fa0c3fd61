/** The daemon's API as the page uses it: JSON, JSON lines as they come, and one-time tickets for sockets. */
export class ApiError extends Error {
  readonly status: number
  readonly code: string

  constructor(status: number, code: string, message: string) {
    super(message)
    this.name = 'ApiError'
    this.status = status
    this.code = code
  }
}

let onSignedOut = (): void => {}
export const whenSignedOut = (told: () => void): void => {
  onSignedOut = told
}

interface Asked {
  readonly method?: string
  readonly body?: unknown
  readonly signal?: AbortSignal | undefined
  /** Signing in itself: a refusal is an answer. */
  readonly quiet?: boolean
}

async function ask(
  path: string,
  { method = 'GET', body, signal, quiet }: Asked,
): Promise<Response> {
  const response = await fetch(path, {
    method,
    credentials: 'same-origin',
    redirect: 'error',
    ...(signal === undefined ? {} : { signal }),
    ...(body === undefined
      ? {}
      : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
  })
  if (response.ok) return response
  const answer = (await response.json().catch(() => ({}))) as { code?: string; message?: string }
  if (response.status === 401 && quiet !== true) onSignedOut()
  throw new ApiError(
    response.status,
    answer.code ?? 'unknown',
    answer.message ?? `the daemon answered ${response.status}`,
  )
}

export async function json<T>(path: string, asked: Asked = {}): Promise<T> {
  return (await (await ask(path, asked)).json()) as T
}

export async function text(path: string, asked: Asked = {}): Promise<string> {
  return (await ask(path, asked)).text()
}

/** Whole lines, several at a time. */
export async function* lines(path: string, asked: Asked = {}): AsyncGenerator<string[]> {
  const { body } = await ask(path, asked)
  if (body === null) return
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = parts.pop() ?? ''
    const whole = parts.filter((part) => part !== '')
    if (whole.length > 0) yield whole
  }
  if (rest !== '') yield [rest]
}

/** null where it isn't there. */
export async function jsonOrNull<T>(path: string, asked: Asked = {}): Promise<T | null> {
  try {
    return await json<T>(path, asked)
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null
    throw error
  }
}

export interface Session {
  readonly role: 'view' | 'run' | 'admin'
  readonly name: string
  readonly expiresAt: string | null
}

export const signIn = (by: { ticket: string } | { token: string }): Promise<Session> =>
  json<Session>('/v1/session', { method: 'POST', body: by, quiet: true })

export async function ticketFor(
  path: string,
  role: 'view' | 'run',
  signal: AbortSignal,
): Promise<string> {
  const body = { path, role }
  const { ticket } = await json<{ ticket: string }>('/v1/tickets', { method: 'POST', body, signal })
  return ticket
}
