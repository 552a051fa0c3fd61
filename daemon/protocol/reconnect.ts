/** How clients of the daemon's sockets come back: at random within a span that doubles, so that many don't come at once. */

const firstMs = 500
const lastMs = 10_000

/** Nothing heard for so long, not even a ping: the connection is dead on one side. */
export const silenceMs = 45_000

/** How long to wait before the next try after `tries` that failed. */
export function retryDelayMs(tries: number): number {
  const most = Math.min(lastMs, firstMs * 2 ** tries)
  return Math.round(most * (0.5 + Math.random() / 2))
}
