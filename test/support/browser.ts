/** A headless Chromium (Debian's package `chromium`), by playwright-core. It is gone when the test is. */
import { existsSync } from 'node:fs'
import { chromium, type Browser } from 'playwright-core'

const program = '/usr/bin/chromium'

export async function openBrowser(): Promise<Browser & AsyncDisposable> {
  if (!existsSync(program))
    throw new Error(`${program} is not installed; apt-get install --no-install-recommends chromium`)
  return chromium.launch({ executablePath: program, args: ['--no-sandbox'] })
}
