/** A whole, valid result, to be bent by a test. */
import { suiteNotRun, type TrialResult } from '../../../runner/result.ts'

const digest = (letter: string): string => `sha256:${letter.repeat(64)}`

export function sampleResult(changes: Partial<TrialResult> = {}): TrialResult {
  return {
    schema: 'closedbook.result/1',
    trial: 'tabcdefghijklmno',
    job: 'j20250102-030405-abcd',
    task: { name: 'org/task', digest: digest('a'), area: 'public-api', hardware: 'cpu' },
    configuration: { name: 'mini', model: 'm', harness: 'mini-swe-agent', settings: {} },
    run: 1,
    verdict: 'passed',
    blame: null,
    reason: { code: 'passed', message: 'every hidden test passed' },
    suites: {
      functional: {
        planned: 3,
        passed: 3,
        failed: 0,
        missing: 0,
        command: 'pytest',
        exit: { code: 0 },
      },
      regression: suiteNotRun(null, 0),
    },
    tests: [{ suite: 'functional', id: 'a::b', outcome: 'passed', durationMs: 1.5, message: null }],
    usage: { inputTokens: 10, cachedInputTokens: 2, outputTokens: 5, reasoningTokens: 1, calls: 2 },
    costUsd: 0.5,
    steps: 2,
    wallTimeMs: 61_000,
    phasesMs: { queue: 0, lease: 1, agent: 2, freeze: 3, collect: 4, verify: 5, close: 6 },
    egress: { attempts: 3, denied: 2, allowed: 1, byReason: { direct_tcp: 2 } },
    proof: {
      before: [{ canary: 'tcp', expected: 'refused', seen: 'refused', audited: true }],
      after: [],
    },
    assisted: false,
    digests: {
      image: digest('b'),
      harness: digest('c'),
      policy: digest('d'),
      instruction: digest('e'),
      patch: null,
      tests: digest('f'),
    },
    host: { name: 'h', engine: '20.10', kernel: '6.1', cpus: 2 },
    gpus: [],
    executions: [
      {
        id: 'e1',
        startedAt: '2025-01-02T03:04:05.000Z',
        endedAt: '2025-01-02T03:05:05.000Z',
        blame: null,
        reason: null,
      },
    ],
    startedAt: '2025-01-02T03:04:05.000Z',
    endedAt: '2025-01-02T03:05:05.000Z',
    closedbookVersion: '0.1.0',
    reported: null,
    ...changes,
  }
}
