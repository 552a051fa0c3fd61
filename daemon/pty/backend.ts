/** What a session needs from whatever runs its program. Nothing here is of the engine's making but the Docker backend. */
import type { Duplex } from 'node:stream'
import type { Size } from './resizer.ts'

export interface PtyBackend {
  /** Written to, paused, resumed and destroyed; with an error listener attached. Closes at the end of the output. */
  readonly stream: Duplex
  /** Begins to read. The bytes are in a buffer that is used again when `take` returns. */
  read(take: (bytes: Buffer) => void): void
  /** Resolves with the code of the first process; null where nobody will tell. Never rejects. */
  readonly died: Promise<number | null>
  /** Where `died` did not tell. `holdsTerminal`: something still has the terminal open. */
  look(): Promise<
    | { readonly state: 'running'; readonly holdsTerminal: boolean }
    | { readonly state: 'ended'; readonly code: number | null; readonly started: boolean }
    | { readonly state: 'container_gone' }
    | { readonly state: 'engine_lost' }
  >
  resize(size: Size): Promise<void>
  /** To all that the program started. */
  signal(name: 'SIGHUP' | 'SIGTERM'): Promise<void>
  /** SIGKILL until nobody is left. `alone`: nothing else was started in this container. */
  kill(options: { readonly alone: boolean }): Promise<void>
}
