/**
 * Runs for some 40 ms inside a sandbox's network namespace (started by nsenter): opens the listeners that it is
 * told, hands each to the daemon over Node's IPC, and ends. A socket belongs for life to the namespace it was made
 * in, so the daemon then accepts from the sandbox in its own process. Every copy is closed here after the hand-over:
 * a helper that kept one would swallow datagrams and hold the port.
 */
import dgram from 'node:dgram'
import net from 'node:net'

interface Wanted {
  readonly name: string
  readonly protocol: 'tcp' | 'udp'
  readonly host: string
  readonly port: number
}

const send = (message: object, handle?: net.Server | dgram.Socket): Promise<void> =>
  new Promise((resolve, reject) => {
    process.send?.(message, handle, {}, (error) => (error === null ? resolve() : reject(error)))
  })

async function open(wanted: Wanted): Promise<void> {
  if (wanted.protocol === 'tcp') {
    const server = net.createServer()
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen({ host: wanted.host, port: wanted.port, backlog: 4096 }, resolve)
    })
    await send({ name: wanted.name }, server)
    server.close()
  } else {
    const socket = dgram.createSocket('udp4')
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject)
      socket.bind({ address: wanted.host, port: wanted.port, exclusive: true }, resolve)
    })
    await send({ name: wanted.name }, socket)
    socket.close()
  }
}

// Without a reader the channel keeps nothing alive, and a hand-over waits for its acknowledgement on the channel.
process.channel?.ref()
try {
  const wanted = JSON.parse(process.argv[2] ?? '[]') as Wanted[]
  await Promise.all(wanted.map(open))
  await send({ done: true })
} catch (error) {
  await send({ failed: error instanceof Error ? error.message : String(error) })
}
process.disconnect()
