/** `closedbook selftest`: a sandbox of this host, tried by a safe subset of the ways out; status 1 where one surprises. */
import Table from 'cli-table3'
import type { Command } from 'commander'
import { exitCode } from '../exit-codes.ts'
import { smallestImageId } from '../host/images.ts'
import { plainLine } from '../report/terminal.ts'
import { selftest } from '../selftest/selftest.ts'
import type { AttemptResult } from '../selftest/attempt.ts'
import { note, print, printJson, withContext } from './context.ts'

export function addSelftest(program: Command): void {
  program
    .command('selftest')
    .description(
      'open a sealed sandbox on this host, try ways out from inside it, and show what came of each',
    )
    .option('--image <ref>', 'image of the sandbox; default: the smallest at hand')
    .option('--failed', 'show only what was not as expected')
    .option('--json', 'print JSON')
    .action(async (options: { image?: string; failed?: boolean }, command: Command) =>
      withContext(command, async ({ client, config, json, signal }) => {
        const image =
          options.image === undefined
            ? await smallestImageId({ client, stateDir: config.stateDir, signal })
            : (await client.inspectImage(options.image, { signal })).id
        const { lease, attempts } = await selftest(client, image, { signal })
        const failed = attempts.filter(({ ok }) => ok === false)
        const untried = attempts.filter(({ ok }) => ok === null)
        if (failed.length > 0) process.exitCode = exitCode.failure
        const shown = options.failed === true ? attempts.filter(({ ok }) => ok !== true) : attempts
        if (json)
          return printJson({
            ok: failed.length === 0,
            lease,
            image,
            attempts: shown,
            counts: {
              tried: attempts.length - untried.length,
              failed: failed.length,
              untried: untried.length,
            },
          })
        if (shown.length > 0) print(tableOf(shown))
        const asExpected = attempts.length - failed.length - untried.length
        note(
          `${asExpected} of ${attempts.length} attempts ended as expected, and are recorded as expected` +
            (untried.length > 0 ? `; ${untried.length} could not be tried` : '') +
            `; see closedbook audit ${lease}`,
        )
      }),
    )
}

function tableOf(rows: readonly AttemptResult[]): string {
  const table = new Table({
    head: ['', 'attempt', 'user', 'expected', 'seen', 'audited'],
    style: { head: [], border: [], compact: true },
  })
  for (const { attempt, user, expected, seen, audited, ok } of rows)
    table.push([
      ok === true ? 'ok' : ok === null ? '-' : 'FAIL',
      ...[attempt, user.split(':')[0] ?? '', expected, seen === expected ? '=' : seen, audited].map(
        plainLine,
      ),
    ])
  return table.toString()
}
