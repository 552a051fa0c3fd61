/** What a page gets. It is left when its signal aborts; everything it started goes with that. */
import type { Session } from './api.ts'
import type { BoardStore } from './board.ts'

export interface Page {
  readonly root: HTMLElement
  readonly params: Readonly<Record<string, string>>
  readonly query: URLSearchParams
  readonly signal: AbortSignal
  readonly board: BoardStore
  readonly session: Session
  readonly title: (text: string) => void
  /** Shows what went wrong in place of the page. */
  readonly fail: (error: unknown) => void
}

/** Runs now, then after each pause, while the page is there and looked at. */
export function poll(work: () => Promise<void>, everyMs: number, page: Page): void {
  const { signal } = page
  let first = true
  const turn = async (): Promise<void> => {
    if (signal.aborted) return
    if (first || !document.hidden)
      try {
        await work()
      } catch (error) {
        if (first) page.fail(error)
      }
    first = false
    setTimeout(() => void turn(), everyMs)
  }
  void turn()
}
