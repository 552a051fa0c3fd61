/** Whether a host can serve a task, asked before anything is planned. */
import type { HostFacts } from '../../daemon/protocol/lease.ts'
import { RunnerError } from '../errors.ts'
import type { Task } from './task.ts'

export function requireHardware(task: Task, host: Pick<HostFacts, 'name' | 'gpus'>): void {
  if (task.hardware === 'cpu') return
  if (host.gpus.some((gpu) => /\bH100\b/i.test(gpu.name))) return
  const found = host.gpus.length === 0 ? 'no GPU' : host.gpus.map((gpu) => gpu.name).join(', ')
  throw new RunnerError(
    'task_invalid',
    'operator',
    `${task.name} needs an H100 (closedbook.hardware = "h100") and host ${host.name} has ${found}; run it on a host with an H100`,
    { facts: { task: task.name, host: host.name } },
  )
}
