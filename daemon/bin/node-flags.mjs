import os from 'node:os'

/**
 * Flags for the Node that runs the daemon. Node starts four helpers for garbage collection and compilation; on two
 * cores they push aside the one thread that answers, by 3 to 5 ms at p99 (docs/benchmarks.md). Half the cores are
 * enough for them.
 */
export function nodeFlags() {
  const helpers = Math.max(1, Math.min(4, Math.floor(os.availableParallelism() / 2)))
  return [`--v8-pool-size=${helpers}`]
}
