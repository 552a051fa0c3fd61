/**
 * How the agent phase ended, who caused it, and whether what the agent left is graded. Pure; a table in effect, in the
 * order that decides: what we did ourselves, what we saw of sandbox and gateway, then what the harness says. A process
 * status alone decides nothing: mini ends with 0 on every limit and with 1 on most errors.
 */
import type { Exit } from '../../daemon/protocol/exec-frames.ts'
import { faultBlame, type FaultCode } from '../../daemon/protocol/model-fault.ts'
import type { TrialBlame, TrialReason } from '../result.ts'

export interface EndFacts {
  /** "" where the harness was stopped before it could say; null where it has no such notion or left no file. */
  readonly exitStatus: string | null
  readonly exitMessage?: string
  readonly processExit: Exit
  /** What is left of the trajectory. */
  readonly file: 'whole' | 'torn' | 'absent'
  /** `usage.fault`: the gateway's last fault that no good answer followed. */
  readonly gatewayFault: { readonly code: string; readonly message: string } | null
  readonly budgetSpent: boolean
  /** We ended it at the hard limit. */
  readonly timedOut: boolean
  /** We ended it for another reason. */
  readonly killedByUs: 'cancelled' | 'shutdown' | null
  /** We ended it: it had been silent for longer than any command or answer may take. */
  readonly hung?: boolean
  /** The harness's own sandbox ran out of memory. */
  readonly oom: boolean
  /** The task's container died under the agent; `oom`: of its own memory limit. */
  readonly taskGone?: { readonly oom: boolean } | null
  /** The task declares capabilities, with which root in its sandbox can end it. */
  readonly mayEndSandbox?: boolean
}

export interface End {
  readonly kind: 'done' | 'limit' | 'refused' | 'crash' | 'fault' | 'stopped'
  readonly blame: TrialBlame | null
  readonly reason: TrialReason
  /** Collect and verify what the agent left. Where false, blame `agent` is a failure and any other is void. */
  readonly gradable: boolean
}

export const end = (
  kind: End['kind'],
  blame: TrialBlame | null,
  code: string,
  message: string,
): End => ({
  kind,
  blame,
  reason: { code, message },
  gradable: blame === null || blame === 'agent',
})

export function classifyEnd(facts: EndFacts): End {
  return endByUs(facts) ?? endOfSandbox(facts) ?? endByClock(facts) ?? endByHarness(facts)
}

/** What decides before anything that a harness says: we ended it, its sandbox ended, its time ended. */
export function endBeforeHarness(
  facts: Pick<EndFacts, 'processExit' | 'timedOut' | 'taskGone' | 'mayEndSandbox'> &
    Partial<Pick<EndFacts, 'killedByUs' | 'gatewayFault'>>,
): End | null {
  const all = { ...nothing, ...facts }
  return endByUs(all) ?? endOfSandbox(all) ?? endByClock(all)
}

function endByUs({ killedByUs }: EndFacts): End | null {
  if (killedByUs === 'cancelled')
    return end('stopped', 'operator', 'cancelled', 'the trial was cancelled')
  if (killedByUs === 'shutdown')
    return end(
      'stopped',
      'infra',
      'runner_shutdown',
      'the runner was shut down during the agent phase',
    )
  return null
}

/** Time that was spent waiting for a model that never answered again is not the agent's. */
function endByClock({ timedOut, exitStatus, gatewayFault }: EndFacts): End | null {
  if (!timedOut && exitStatus !== 'TimeExceeded') return null
  if (gatewayFault !== null) return endByFault(gatewayFault)
  return end('limit', 'agent', 'wall_time', 'the agent was still at work when its time ended')
}

function endOfSandbox({ taskGone, oom, mayEndSandbox }: EndFacts): End | null {
  if (taskGone?.oom === true)
    return {
      ...end(
        'crash',
        'agent',
        'sandbox_out_of_memory',
        'the sandbox was killed for memory; nothing is left to grade',
      ),
      gradable: false,
    }
  if (taskGone && mayEndSandbox === true)
    return {
      ...end(
        'crash',
        'agent',
        'sandbox_ended',
        'the agent ended its own sandbox; nothing is left to grade',
      ),
      gradable: false,
    }
  if (taskGone)
    return end(
      'fault',
      'infra',
      'sandbox_gone',
      "the task's container ended during the agent phase",
    )
  if (oom)
    return end(
      'fault',
      'infra',
      'harness_out_of_memory',
      "the harness's own sandbox ran out of memory",
    )
  return null
}

/** Ends that mini calls by these names are the agent's own. */
export const ownEnds: Readonly<Record<string, readonly [End['kind'], string, string]>> = {
  LimitsExceeded: ['limit', 'limit_reached', 'the limit of steps or cost was reached'],
  RepeatedFormatError: [
    'crash',
    'format_errors',
    'the model broke the form of its answers too often in a row',
  ],
  ContextWindowExceededError: [
    'limit',
    'context_window',
    "the conversation outgrew the model's context window",
  ],
}

/** Exceptions of the model client; each may be a spent budget, a fault of the provider, or a refusal by the gateway. */
const modelErrors: Readonly<Record<string, 'refusal' | 'fault'>> = {
  AuthenticationError: 'refusal',
  PermissionDeniedError: 'refusal',
  NotFoundError: 'refusal',
  BadRequestError: 'refusal',
  UnprocessableEntityError: 'refusal',
  UnsupportedParamsError: 'refusal',
  APIError: 'fault',
  APIConnectionError: 'fault',
  BadGatewayError: 'fault',
  IndexError: 'fault',
  InternalServerError: 'fault',
  RateLimitError: 'fault',
  ServiceUnavailableError: 'fault',
  Timeout: 'fault',
}

/** Exceptions of mini itself that a wrong configuration makes. */
const settingErrors: Readonly<Record<string, string>> = {
  AttributeError: 'a setting that mini-SWE-agent can not work with, such as a streamed answer',
  RuntimeError: 'a missing price, or a call limit outside the configuration',
  TypeError: 'a setting of the wrong type',
  UndefinedError: 'a faulty template',
  ValidationError: 'a setting of the wrong type',
}

function endByHarness(facts: EndFacts): End {
  if (facts.hung === true)
    return end(
      'fault',
      'infra',
      'harness_hung',
      'the harness was silent for too long and was ended',
    )
  const { exitStatus, gatewayFault, budgetSpent } = facts
  const said =
    facts.exitMessage === undefined || facts.exitMessage === ''
      ? ''
      : `: ${firstLine(facts.exitMessage)}`
  if (exitStatus === 'Submitted') return end('done', null, 'submitted', 'the agent submitted')
  const own = exitStatus === null ? undefined : ownEnds[exitStatus]
  if (own !== undefined) return end(own[0], 'agent', own[1], own[2])
  const model = exitStatus === null ? undefined : modelErrors[exitStatus]
  if (model !== undefined && budgetSpent)
    return end(
      'limit',
      'agent',
      'budget_spent',
      "the gateway's budget of calls, tokens or cost was spent",
    )
  if (gatewayFault !== null && (model !== undefined || !exitStatus)) return endByFault(gatewayFault)
  if (model === 'refusal')
    return end(
      'refused',
      'operator',
      'model_refused',
      `the model endpoint refused a request${said}`,
    )
  if (model === 'fault')
    return end('fault', 'infra', 'model_fault', `${exitStatus} from the model endpoint${said}`)
  const setting = exitStatus === null ? undefined : settingErrors[exitStatus]
  if (setting !== undefined)
    return end('refused', 'operator', 'harness_settings', `${exitStatus}, by ${setting}${said}`)
  if (exitStatus === 'EOFError')
    return end(
      'fault',
      'infra',
      'harness_prompted',
      'mini-SWE-agent asked a question that nobody could answer',
    )
  if (exitStatus)
    return end('fault', 'infra', 'harness_error', `${exitStatus} in the harness${said}`)
  return endUnsaid(facts)
}

export function endByFault(fault: { code: string; message: string }): End {
  const blame = isFaultCode(fault.code) ? faultBlame[fault.code] : 'infra'
  return end(blame === 'operator' ? 'refused' : 'fault', blame, fault.code, fault.message)
}

const isFaultCode = (code: string): code is FaultCode => Object.hasOwn(faultBlame, code)

/** No exit message: the process was stopped, or failed before its first step or in the middle of one. */
function endUnsaid({ processExit, file }: EndFacts): End {
  const how = exitText(processExit)
  if (isSignal(processExit))
    return end('fault', 'infra', 'harness_killed', `the harness was killed (${how})`)
  if (file === 'absent')
    return end(
      'fault',
      'infra',
      'harness_not_started',
      `the harness ended before its first step (${how})`,
    )
  return end('fault', 'infra', 'harness_crashed', `the harness ended without a word (${how})`)
}

/** A shell gives a signal as 128 + n. */
const isSignal = (exit: Exit): boolean =>
  exit !== 'unknown' && ('signal' in exit || (exit.code > 128 && exit.code <= 128 + 64))

export const exitText = (exit: Exit): string =>
  exit === 'unknown' ? 'exit unknown' : 'code' in exit ? `exit ${exit.code}` : exit.signal

const firstLine = (text: string): string => (text.trim().split('\n')[0] ?? '').slice(0, 300)

/**
 * The end of `noop`, `oracle` and `script:FILE`, whose process is the agent itself: its status is told, and what it
 * left is graded whatever it was.
 */
export function classifyScriptEnd(
  facts: Pick<EndFacts, 'processExit' | 'timedOut' | 'killedByUs' | 'taskGone' | 'mayEndSandbox'>,
): End {
  const earlier = endBeforeHarness(facts)
  if (earlier !== null) return earlier
  const { processExit } = facts
  if (processExit !== 'unknown' && 'code' in processExit && processExit.code === 0)
    return end('done', null, 'submitted', 'the script ended')
  if (processExit === 'unknown')
    return end('fault', 'infra', 'exit_unknown', 'how the script ended could not be seen')
  return end('crash', 'agent', 'script_failed', `the script ended with ${exitText(processExit)}`)
}

const nothing: EndFacts = {
  exitStatus: null,
  processExit: 'unknown',
  file: 'absent',
  gatewayFault: null,
  budgetSpent: false,
  timedOut: false,
  killedByUs: null,
  oom: false,
}
