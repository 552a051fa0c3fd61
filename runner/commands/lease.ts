/** `closedbook lease open|list|close`: sealed sandboxes for a person, a script or another product. */
import type { Command } from 'commander'
import os from 'node:os'
import { RunnerError } from '../errors.ts'
import { readPolicyFile } from '../policy-file.ts'
import { huggingFaceEnvironment } from '../trial/hugging-face.ts'
import { proxyEnvironment } from '../trial/proxy-environment.ts'
import { note, print, printJson, withContext } from './context.ts'

interface OpenOptions {
  image: string
  policy?: string
  gpus: number
  cpus: number
  memory: number
  ttl: number
  user?: string
  workdir?: string
}

export function addLease(program: Command): void {
  const lease = program.command('lease').description('open, list and close sealed sandboxes')
  const positive = (text: string): number => {
    const value = Number(text)
    if (!Number.isFinite(value) || value < 0)
      throw new RunnerError('usage', 'operator', `"${text}" is not a number of zero or more`)
    return value
  }

  lease
    .command('open')
    .description('open a sealed sandbox; without a policy file nothing is allowed')
    .requiredOption(
      '--image <ref>',
      'image by digest, id, or a local tag that is resolved to its id',
    )
    .option('--policy <file>', 'policy document (YAML or JSON)')
    .option('--gpus <n>', 'whole GPUs', positive, 0)
    .option('--cpus <n>', 'CPUs', positive, 1)
    .option('--memory <mib>', 'memory in MiB', positive, 2048)
    .option('--ttl <seconds>', 'closed after so long without renewal', positive, 8 * 3600)
    .option('--user <user>', "user of commands; default: the image's")
    .option('--workdir <dir>', "working directory; default: the image's")
    .option('--json', 'print JSON')
    .action(async (options: OpenOptions, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const policy =
          options.policy === undefined ? undefined : await readPolicyFile(options.policy)
        const image = await client.inspectImage(options.image, { signal })
        const view = await client.openLease(
          {
            image: image.id,
            ...(policy === undefined
              ? {}
              : {
                  policy,
                  env: { ...proxyEnvironment(policy), ...huggingFaceEnvironment(policy) },
                }),
            gpus: options.gpus,
            resources: { cpus: options.cpus, memoryBytes: options.memory * 1024 ** 2 },
            ttlSeconds: options.ttl,
            owner: os.userInfo().username,
            ...(options.user === undefined ? {} : { user: options.user }),
            ...(options.workdir === undefined ? {} : { workdir: options.workdir }),
          },
          { signal },
        )
        if (json) return printJson({ lease: view.lease, state: view.state })
        note(
          `sealed and proven by ${view.proof.before.length} canaries; try: closedbook exec ${view.lease} -- sh`,
        )
        print(view.lease)
      }),
    )

  lease
    .command('list')
    .description('the open leases of this host')
    .option('--json', 'print JSON')
    .action(async (_options: object, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const leases = await client.leases({ signal })
        if (json) return printJson({ leases })
        if (leases.length === 0) return note('no lease is open')
        for (const { lease: id, state, owner, trial, expiresAt, image } of leases)
          print([id, state, owner, trial ?? '-', expiresAt, image.slice(0, 19)].join('  '))
      }),
    )

  lease
    .command('close')
    .description('close leases: containers, networks and gateways are gone, audit logs stay')
    .argument('<lease...>')
    .option('--json', 'print JSON')
    .action(async (ids: string[], _options: object, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        for (const id of ids) {
          await client.lease(id, { signal })
          await client.closeLease(id, 'closed by request', { signal })
          if (json) printJson({ lease: id, state: 'closed' })
        }
      }),
    )
}
