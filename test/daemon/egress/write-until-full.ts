/** A process of its own whose files the kernel doesn't let grow, as on a full disk: writes a log, tells what happened. */
import { AuditError } from '../../../daemon/egress/audit-error.ts'
import { AuditLog } from '../../../daemon/egress/audit-log.ts'

const outcome = async (work: () => unknown): Promise<string> => {
  try {
    await work()
    return 'done'
  } catch (error) {
    return error instanceof AuditError ? `${error.code}: ${error.message}` : String(error)
  }
}

async function run(file: string): Promise<void> {
  const log = await AuditLog.open(file, { lease: 'lease0000001', trial: null })
  const append = (): unknown =>
    log.append({ kind: 'decision', protocol: 'tcp', action: 'deny', reason: 'direct_tcp' })
  for (let n = 0; n < 10; n += 1) append()
  const flush = await outcome(() => log.flush())
  const failed = (await log.failed).code
  const [late, close] = [await outcome(append), await outcome(() => log.close())]
  process.stdout.write(JSON.stringify({ flush, failed, append: late, close }))
}

const [, , file] = process.argv
if (file !== undefined) await run(file)
