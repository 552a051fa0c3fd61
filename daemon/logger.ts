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
  return pino({
    level: options.level,
    base: null,
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label) => ({ level: label }) },
    serializers: { err: serialize },
    redact: { paths: ['apiKey', '*.apiKey', '*.*.apiKey', 'headers.authorization'] },
  })
}
