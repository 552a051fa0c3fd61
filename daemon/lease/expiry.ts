/** When a lease ends unless somebody renews it: told as a date, kept by a clock that nobody sets. */
export class Expiry {
  #at: string
  #deadlineMs: number

  /** `at`: of an adopted lease, from its record. */
  constructor(ttlSeconds: number, at?: string) {
    this.#at = at ?? inSeconds(ttlSeconds)
    this.#deadlineMs = performance.now() + Date.parse(this.#at) - Date.now()
  }

  get at(): string {
    return this.#at
  }

  get passed(): boolean {
    return performance.now() >= this.#deadlineMs
  }

  renew(ttlSeconds: number): void {
    this.#at = inSeconds(ttlSeconds)
    this.#deadlineMs = performance.now() + ttlSeconds * 1000
  }
}

const inSeconds = (seconds: number): string => new Date(Date.now() + seconds * 1000).toISOString()
