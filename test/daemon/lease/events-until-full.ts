/** A process of its own whose files the kernel doesn't let grow, as on a full disk: writes events, tells what happened. */
import { EventLog } from '../../../daemon/lease/event-log.ts'

const [, , file] = process.argv
if (file !== undefined) {
  const log = await EventLog.open('lease0000001', file)
  for (let n = 0; n < 20; n += 1) log.append({ type: 'state', state: 'ready', reason: null })
  const { code, message } = await log.failed
  await log[Symbol.asyncDispose]()
  process.stdout.write(JSON.stringify({ code, message }))
}
