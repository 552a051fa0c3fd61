/** The daemon's log: JSON lines by pino. Messages are stable event names, data are fields, causes are kept whole. */
import { pino, stdSerializers, type Logger as PinoLogger } from 'pino'

export type Logger = PinoLogger

/** pino's own serializer hides what a SuppressedError suppressed; both sides are told here. */
function serialize(error: unknown): unknown {
  if (error instanceof SuppressedError)
    return {
      ...stdSerializers.err(error),
      error: serialize(error.error),
      suppressed: serialize(error.suppressed),
    }
  if (error instanceof Error) return stdSerializers.errWithCause(error)
  return error
}

export function createLogger(options: { level: string }): Logger {
  // Asynchronous, and a full disk is no reason to end: the log is for people, the journal and the audit are the records.
  const destination = pino.destination({ fd: 1, sync: false })
  destination.on('error', () => {})
  const settings = {
    level: options.level,
    base: null,
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: { err: serialize },
    redact: { paths: ['apiKey', '*.apiKey', '*.*.apiKey', 'headers.authorization'] },
  }
  return pino(settings, destination)
}
