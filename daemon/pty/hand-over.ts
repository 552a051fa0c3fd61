/**
 * Gives the sockets of viewers to the host that this daemon started, over the channel between the two. Node sends one at
 * a time, each once the host has said that it has the one before. When the host is gone meanwhile, Node keeps for ever
 * what waits, and says nothing; so it is kept in mind here: who isn't given away in time is cut, and comes back.
 */
import type { ChildProcess } from 'node:child_process'
import type { Socket } from 'node:net'
import type { HandedViewer } from './host-protocol.ts'

/** As long as clients wait for the answer to their request. */
const waitMs = 15_000

interface SocketHandle {
  readonly readStop?: () => void
  readonly close?: () => void
}

/** What Node keeps to itself of a socket and gives no other way to. */
interface SocketInsides {
  /** Until the host says that it has the socket, this process would go on to read what is the host's. */
  _handle?: SocketHandle | null
  /** The end of that server would wait for what it gave away. */
  server?: unknown
}

export class HandOver {
  readonly #host: ChildProcess
  readonly #waiting = new Set<Socket>()
  /** Sent last, and perhaps not taken. */
  #sent: SocketHandle | null = null

  constructor(host: ChildProcess) {
    this.#host = host
    host.once('exit', () => {
      this.#sent?.close?.()
      for (const socket of this.#waiting) socket.destroy()
    })
  }

  /** The socket is the host's from here on, and this process sees no more of it; false: it can't be given away. */
  give(viewer: HandedViewer, socket: Socket & SocketInsides): boolean {
    const { _handle: handle } = socket
    const { connected, exitCode, signalCode } = this.#host
    if (!connected || exitCode !== null || signalCode !== null || !handle?.readStop) return false
    handle.readStop()
    socket.server = null
    this.#waiting.add(socket)
    const over = (): void => {
      clearTimeout(late)
      socket.destroy()
      this.#waiting.delete(socket)
    }
    const late = setTimeout(over, waitMs)
    late.unref()
    this.#host.send(viewer, socket, {}, () => {
      over()
      this.#sent = handle
    })
    return true
  }
}
