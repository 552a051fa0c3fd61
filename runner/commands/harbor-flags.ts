/** The flags by which an operator lets plain Harbor tasks run closed, or take variables of this host. */
import type { Command } from 'commander'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { RunnerError } from '../errors.ts'
import { harborOptionsSchema, type HarborOptions, type LoadOptions } from '../task/options.ts'

export interface HarborFlags {
  closedBookNetwork?: boolean
  hostEnv: string[]
}

export const addHarborFlags = (command: Command): Command =>
  command
    .option(
      '--closed-book-network',
      'run Harbor tasks sealed that ask for the public network or hosts of their own; results say so',
    )
    .option(
      '--host-env <name>',
      'a variable of this host that Harbor tasks may take into their containers; may be repeated',
      (variable: string, all: string[]) => [...all, variable],
      [],
    )

/** As `loadTask` takes it; what a job file says holds too. */
export function harborOptionsOf(
  flags: HarborFlags,
  written: HarborOptions | null = null,
): Pick<LoadOptions, 'harbor'> {
  const parsed = harborOptionsSchema.safeParse({
    ...(flags.closedBookNetwork === true
      ? { network: 'closed-book' }
      : written?.network !== undefined && { network: written.network }),
    hostEnv: [...(written?.hostEnv ?? []), ...flags.hostEnv],
  })
  if (!parsed.success)
    throw new RunnerError('usage', 'operator', `--host-env: ${zodMessage(parsed.error)}`)
  const { data } = parsed
  return data.network === undefined && data.hostEnv.length === 0 ? {} : { harbor: data }
}
