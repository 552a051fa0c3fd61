/** The version of the package, for health, labels, plans and results: daemon and runner are one package. */
import { readFileSync } from 'node:fs'

export const packageVersion: string = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
).version
