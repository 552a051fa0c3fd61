/** `closedbook doctor`: what this host has, what is missing, and what to do about it. */
import type { Command } from 'commander'
import { checkHost, type Check } from '../host/checks.ts'
import { exitCode } from '../exit-codes.ts'
import { print, printJson, withContext } from './context.ts'

const sign: Record<Check['state'], string> = { ok: 'ok  ', warn: 'warn', fail: 'FAIL' }

export function addDoctor(program: Command): void {
  program
    .command('doctor')
    .description('check engine, tools, disk and GPUs of this host; says what to do')
    .option('--json', 'print JSON')
    .action(async (_options: object, command: Command) =>
      withContext(command, async ({ config, json }) => {
        const checks = await checkHost(config)
        const healthy = checks.every(({ state }) => state !== 'fail')
        if (json) printJson({ healthy, checks })
        else
          for (const { name, state, found, todo } of checks) {
            print(`${sign[state]}  ${name.padEnd(14)} ${found}`)
            if (todo !== null) print(`      ${''.padEnd(14)} → ${todo}`)
          }
        if (!healthy) process.exitCode = exitCode.failure
      }),
    )
}
