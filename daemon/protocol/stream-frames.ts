/**
 * `closedbook.stream.v1`: a numbered stream over WebSocket, one item a text message, `{n, data}`. It goes one way: the
 * server sends from number `from` of the query on, and a client that was away asks for what follows the last number it
 * saw. What a client sends is refused. Nothing here needs Node: browsers use this file as it is.
 */
export const streamProtocol = 'closedbook.stream.v1'

/** Close codes; from 4000 to 4099 a client doesn't try again. */
export const streamClose = {
  /** There will be no more. */
  ended: 1000,
  failed: 1011,
  /** The client sent something. */
  badFrame: 4000,
  unauthorized: 4001,
} as const

export const isFinalStreamClose = (code: number): boolean =>
  code === streamClose.ended || (code >= 4000 && code < 4100)

export interface StreamItem {
  readonly n: number
  readonly data: unknown
}

/** `text` is JSON already. */
export const encodeItem = (n: number, text: string): string => `{"n":${n},"data":${text}}`
