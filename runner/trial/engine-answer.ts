/** Two answers of an engine that is alive: the path isn't there, or can't be read as it was left. */
import { ClosedbookError } from '../../daemon/protocol/errors.ts'

export const isPathMissing = (error: unknown): boolean =>
  error instanceof ClosedbookError && error.code === 'path_missing'

export const isRefused = (error: unknown): boolean =>
  error instanceof ClosedbookError && error.code === 'engine_refused'
