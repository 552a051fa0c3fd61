/**
 * Opens a sealed sandbox, tries the ways out from inside it as root and as a user without a name, and compares what came
 * of each with what the audit log says. The lease is closed whatever happens.
 */
import { randomBytes } from 'node:crypto'
import os from 'node:os'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { policySchema } from '../../policy/policy.ts'
import { RunnerError } from '../errors.ts'
import {
  attemptProgram,
  busyboxPath,
  judgeAttempts,
  type Attempt,
  type AttemptResult,
} from './attempt.ts'
import { kernelAttempts } from './kernel-attempts.ts'
import { modelAttempts, modelName } from './model-attempts.ts'
import { allowedName, networkAttempts } from './network-attempts.ts'

const users = ['0', '65534:65534'] as const
const limitMs = 60_000
const outputLimitBytes = 1024 * 1024

export interface SelftestResult {
  readonly lease: string
  readonly attempts: readonly AttemptResult[]
}

export async function selftest(
  client: DaemonClient,
  image: string,
  { signal }: { signal: AbortSignal },
): Promise<SelftestResult> {
  const key = `selftest-${randomBytes(16).toString('hex')}`
  const { lease, proof } = await client.openLease(
    {
      image,
      policy: policySchema.parse({
        version: 1,
        connect: { allow: [allowedName], ports: [80, 443] },
      }),
      model: {
        upstream: { kind: 'openai', baseUrl: 'http://198.51.100.9/v1', apiKey: key },
        model: modelName,
        price: { inputPerMillionUsd: 0, cachedInputPerMillionUsd: 0, outputPerMillionUsd: 0 },
        record: false,
      },
      hostname: 'selftest',
      owner: os.userInfo().username,
      ttlSeconds: 300,
    },
    { signal },
  )
  try {
    const results: AttemptResult[] = proof.before.map(
      ({ canary, expected, seen, audited, ok }) => ({
        attempt: `proof: ${canary}`,
        user: '0',
        expected,
        seen,
        audited: audited === null ? '-' : audited ? 'yes' : 'missing',
        ok,
      }),
    )
    for (const user of users) {
      const attempts = [...networkAttempts(), ...modelAttempts(key), ...kernelAttempts()]
      results.push(...(await tryAll(client, lease, user, attempts, signal)))
    }
    return { lease, attempts: results }
  } finally {
    await client.closeLease(lease, 'the selftest is over')
  }
}

async function tryAll(
  client: DaemonClient,
  lease: string,
  user: string,
  attempts: readonly Attempt[],
  signal: AbortSignal,
): Promise<AttemptResult[]> {
  const before = await lastSeq(client, lease, signal)
  const output: Buffer[] = []
  const end = await client.exec(
    lease,
    {
      argv: [busyboxPath, 'sh', '-c', attemptProgram(attempts)],
      user,
      workdir: '/',
      timeoutMs: limitMs,
      outputLimitBytes,
    },
    { onStdout: (_offset, bytes) => void output.push(bytes), signal },
  )
  if (end.cause === 'timeout')
    throw new RunnerError('proof_failed', 'infra', `the attempts did not end in ${limitMs} ms`)
  const events: AuditEvent[] = []
  for await (const event of client.audit(lease, { signal }))
    if (event.seq > before) events.push(event)
  return judgeAttempts(attempts, user, Buffer.concat(output).toString('latin1'), events)
}

async function lastSeq(client: DaemonClient, lease: string, signal: AbortSignal): Promise<number> {
  let last = 0
  for await (const { seq } of client.audit(lease, { signal })) last = seq
  return last
}
