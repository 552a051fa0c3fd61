/** The fixture task, with time for its suites on a host that does much else: what is tested here is not its limits. */
import { cp, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { tally } from '../trials/setup.ts'

export async function copyTally(dir: string): Promise<void> {
  await cp(tally, dir, { recursive: true })
  const file = path.join(dir, 'task.toml')
  const text = await readFile(file, 'utf8')
  await writeFile(file, text.replace(/(?<=\[verifier\]\ntimeout_sec = )15\.0/, '300.0'))
}
