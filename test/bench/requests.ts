/**
 * A load generator, a program of its own so that it can be started in a sandbox's network namespace: requests at a
 * fixed rate whatever the answers do, each timed from when it was due, so that a stall counts for all that it delays.
 * Prints the milliseconds of each as JSON.
 */
import http from 'node:http'
import net from 'node:net'

export interface LoadSpec {
  readonly perSecond: number
  readonly seconds: number
  /** So many go before, one after the other, and don't count. */
  readonly warm: number
  readonly kind: 'http' | 'tunnel'
  /** Where to connect; for `http` kept alive. */
  readonly port: number
  readonly path: string
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** For `tunnel`: what the CONNECT names (empty: none is sent), and the first bytes inside, in hex. */
  readonly target: string
  readonly hello: string
}

const spec = JSON.parse(process.argv[2] ?? '{}') as LoadSpec
const agent = new http.Agent({ keepAlive: true, maxSockets: 64 })

function request(): Promise<void> {
  const { port, path, method, headers, body } = spec
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, path, method, agent, headers: { ...headers } }
    const sent = http.request(options, (response) => {
      response.resume()
      response.once('error', reject)
      response.once('end', () =>
        response.statusCode === 200
          ? resolve()
          : reject(new Error(`answered ${response.statusCode}`)),
      )
    })
    sent.once('error', reject)
    sent.end(body)
  })
}

/** Opens a tunnel, sends the hello, and waits for the first byte that comes back. */
function tunnel(): Promise<void> {
  const { port, target, hello } = spec
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host: '127.0.0.1', port, noDelay: true })
    const first = Buffer.from(hello, 'hex')
    let open = target === ''
    if (open) socket.write(first)
    else socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`)
    socket.once('error', reject)
    socket.on('data', (bytes) => {
      if (open) {
        socket.destroy()
        resolve()
      } else if (bytes.subarray(0, 12).toString() === 'HTTP/1.1 200') {
        open = true
        socket.write(first)
      } else reject(new Error(bytes.toString()))
    })
    socket.once('close', () => reject(new Error('closed early')))
  })
}

const one = spec.kind === 'http' ? request : tunnel
for (let warm = 0; warm < spec.warm; warm++) await one()
const started = performance.now()
const under: Promise<number>[] = []
for (let sent = 0; sent < spec.perSecond * spec.seconds;) {
  const due = started + (sent * 1000) / spec.perSecond
  const now = performance.now()
  if (now < due) {
    await new Promise((resolve) => setTimeout(resolve, due - now))
    continue
  }
  const took = one().then(() => performance.now() - due)
  // Told at the end.
  took.catch(() => {})
  under.push(took)
  sent += 1
}
try {
  console.log(JSON.stringify(await Promise.all(under)))
  process.exit(0)
} catch (error) {
  console.error(String(error))
  process.exit(1)
}
