/** A unix socket in front of another, or a port before a port, whose connections can all be cut, or refused, as a dying engine would. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface CuttingProxy extends AsyncDisposable {
  readonly socketPath: string
  /** On 127.0.0.1, before a port. */
  readonly port: number
  /** Cuts every connection that carried `text` from the client, or all without it; later ones pass. */
  cut(text?: string): void
  /** Refuses what comes from now on, as well as cutting what there is. */
  stop(): void
}

export async function cuttingProxy(upstream: string | number): Promise<CuttingProxy> {
  const directory = await mkdtemp(join(tmpdir(), 'cb-proxy-'))
  const socketPath = join(directory, 's')
  const open = new Map<Socket, { far: Socket; said: string }>()
  let refusing = false
  const server = createServer((near) => {
    if (refusing) {
      near.destroy()
      return
    }
    const far = typeof upstream === 'string' ? connect(upstream) : connect(upstream, '127.0.0.1')
    const entry = { far, said: '' }
    open.set(near, entry)
    near.on('data', (chunk: Buffer) => (entry.said += chunk.toString('latin1')))
    near.on('error', () => undefined).on('close', () => open.delete(near))
    far.on('error', () => near.destroy()).on('close', () => near.destroy())
    near.pipe(far).pipe(near)
  })
  if (typeof upstream === 'string') server.listen(socketPath)
  else server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address() as AddressInfo | string
  const cut = (text = ''): void => {
    for (const [near, { far, said }] of open)
      if (said.includes(text)) {
        near.destroy()
        far.destroy()
      }
  }
  const stop = (): void => {
    refusing = true
    cut()
  }
  return {
    socketPath,
    port: typeof address === 'string' ? 0 : address.port,
    cut,
    stop,
    [Symbol.asyncDispose]: async () => {
      stop()
      await new Promise((closed) => server.close(closed))
      await rm(directory, { recursive: true, force: true })
    },
  }
}
