/** `closedbook gpus`: every GPU of this host, who has it, and why it isn't lent. */
import type { Command } from 'commander'
import type { GpuReport, GpuView } from '../../daemon/protocol/gpu.ts'
import { note, print, printJson, withContext } from './context.ts'

export function addGpus(program: Command): void {
  program
    .command('gpus')
    .description('the GPUs of this host: state, lease, and why one is not lent')
    .option('--probe', 'look at them now, and take back quarantined ones that are well')
    .option('--json', 'print JSON')
    .action(async (options: { probe?: boolean }, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const report = await client.gpus({ signal, probe: options.probe === true })
        if (json) return printJson(report)
        for (const gpu of report.gpus) print(line(gpu))
        note(summary(report))
      }),
    )
}

function line({ uuid, name, state, lease, reason, memoryBytes, memoryUsedBytes }: GpuView): string {
  const memory = `${gib(memoryUsedBytes)}/${gib(memoryBytes)} GiB`
  const what = [uuid, name, memory, state, lease].filter((part) => part !== null).join('  ')
  return reason === null ? what : `${what}\n    ${reason}`
}

function summary({ smi, mode, toolkit, refusal, gpus }: GpuReport): string {
  if (refusal !== null) return `no GPU is lent: ${refusal}`
  if (smi === null || gpus.length === 0)
    return 'no GPU on this host, or none that the daemon may lend (gpu.lend)'
  const how = mode === 'cdi' ? 'device specs (CDI)' : "NVIDIA's hook"
  return `passed by ${how}, NVIDIA container toolkit ${toolkit ?? 'of an unknown version'}`
}

const gib = (bytes: number): string => (bytes / 1024 ** 3).toFixed(1)
