import t from 'tap'
import { parse } from 'yaml'
import { atifFromSteps, atifFromTrajectory } from '../../../runner/harness/atif.ts'
import { atifProblems } from '../../../runner/harness/atif-schema.ts'
import {
  configMismatches,
  hardLimitSeconds,
  miniCommand,
  miniConfig,
  miniFiles,
  miniPaths,
  type MiniInput,
} from '../../../runner/harness/mini-swe-agent.ts'
import { pyYaml, type Json } from '../../../runner/harness/py-yaml.ts'
import { readTrajectory } from '../../../runner/harness/trajectory.ts'
import { Random } from '../support/random.ts'

const input: MiniInput = {
  instruction: 'Fix {{ it }}: # not a comment\n\u{1f600} é',
  model: {
    name: 'acme/model-1',
    upstream: { kind: 'replay', recordings: '/r' },
    price: { inputPerMillionUsd: 1, cachedInputPerMillionUsd: 0.1, outputPerMillionUsd: 10 },
    parameters: { temperature: 1e-7, seed: 3 },
    budget: {},
    timeoutSeconds: 600,
  },
  limits: { steps: 20, costUsd: 1.5, wallTimeSeconds: 900, commandTimeoutSeconds: 60 },
  workdir: '/workspace',
}

void t.test('the files set limits, prices and no retries, and hold no key', (t) => {
  const files = miniFiles(input)
  t.strictSame(
    Object.keys(files).sort((a, b) => a.localeCompare(b)),
    ['registry.json', 'trial.yaml'],
  )
  t.match(parse(files['trial.yaml'] ?? '', { version: '1.1' }), {
    run: { task: input.instruction },
    agent: { step_limit: 20, cost_limit: 1.5, wall_time_limit_seconds: 900 },
    environment: {
      environment_class: 'docker',
      cwd: '/workspace',
      timeout: 60,
      container_timeout: 'infinity',
      run_args: { length: 0 },
    },
    model: {
      model_name: 'openai/acme/model-1',
      cost_tracking: 'ignore_errors',
      litellm_model_registry: '/closedbook/config/registry.json',
      model_kwargs: { temperature: 1e-7, seed: 3, max_retries: 0, timeout: 630 },
    },
  })
  const registry: unknown = JSON.parse(files['registry.json'] ?? '')
  const entry = {
    input_cost_per_token: 1e-6,
    cache_read_input_token_cost: 1e-7,
    output_cost_per_token: 1e-5,
    litellm_provider: 'openai',
  }
  t.match(registry, { 'openai/acme/model-1': entry, 'acme/model-1': entry })
  t.notMatch(JSON.stringify(files), /api_key/)
  t.end()
})

void t.test('the command runs unattended, looks nothing up and finds the shim', (t) => {
  const { argv, env, workdir } = miniCommand(input.model)
  t.strictSame(argv.slice(1, 4), ['-y', '--exit-immediately', '-c'])
  t.equal(
    argv.indexOf(miniPaths.baseConfig) < argv.indexOf('/closedbook/config/trial.yaml'),
    true,
    'ours is laid over',
  )
  t.equal(argv.at(-1), '/tmp/trajectory.traj.json')
  t.equal(workdir, '/tmp')
  t.match(env, {
    MSWEA_CONFIGURED: 'true',
    MSWEA_DOCKER_EXECUTABLE: '/opt/closedbook/docker',
    LITELLM_LOCAL_MODEL_COST_MAP: 'True',
    OPENAI_BASE_URL: 'http://127.0.0.1:8400/v1',
    NO_PROXY: '127.0.0.1',
    PYTHONIOENCODING: 'utf-8:backslashreplace',
    MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT: '3',
  })
  t.notOk(
    Object.keys(env).some((name) => name === name.toLowerCase()),
    'a lower-case name would break its templates',
  )
  const live = miniCommand({
    upstream: { kind: 'openai', baseUrl: 'http://x/v1', key: { env: 'K' } },
  })
  t.equal(live.env['MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT'], '10')
  t.equal(hardLimitSeconds(input.limits), 900 + 60 + 60)
  t.end()
})

void t.test('what mini says it used is compared with what we set', (t) => {
  const { agent, environment, model } = miniConfig(input)
  const reported = {
    agent: { ...agent, mode: 'yolo', step_limit: 20 },
    environment: { ...environment, environment_class: undefined, env: { PAGER: 'cat' } },
    model: { ...model, model_kwargs: { drop_params: true, ...model.model_kwargs } },
    agent_type: 'x',
  }
  t.strictSame(configMismatches(input, reported), [])
  t.strictSame(configMismatches(input, { ...reported, agent: { ...agent, step_limit: 0 } }), [
    'agent.step_limit',
  ])
  t.strictSame(configMismatches(input, { ...reported, model: { ...model, model_kwargs: {} } }), [
    'model.model_kwargs.temperature',
    'model.model_kwargs.seed',
    'model.model_kwargs.timeout',
    'model.model_kwargs.max_retries',
  ])
  t.strictSame(configMismatches(input, null), [''])
  t.end()
})

/** What PyYAML's reader takes (its NON_PRINTABLE, turned round). */
const printable = /^[\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]*$/u

void t.test('any text and number comes back from YAML 1.1 as it went in', (t) => {
  const random = new Random(42)
  for (let round = 0; round < 300; round++) {
    const value: Json = {
      [random.text(random.int(1, 10))]: random.text(random.int(0, 60)),
      list: [random.text(3), random.int(-5, 5), null, random.next() < 0.5, []],
      number: (random.next() - 0.5) * 10 ** random.int(-12, 25),
      empty: {},
    }
    const text = pyYaml(value)
    t.match(text, printable)
    t.notMatch(text, /[\u0085\u2028\u2029]/, 'no break that only YAML sees')
    for (const number of text.match(/: -?\d[^,\n]*/g) ?? [])
      if (number.includes('e'))
        t.match(number, /\.\d*e[+-]\d+$/, 'PyYAML wants a dot before an exponent')
    const whole: unknown = JSON.parse(
      JSON.stringify(value, (_key, inner: unknown) =>
        typeof inner === 'string' ? inner.toWellFormed() : inner,
      ),
    )
    const keysWhole = Object.fromEntries(
      Object.entries(whole ?? {}).map(([key, inner]) => [key.toWellFormed(), inner]),
    )
    t.strictSame(parse(text, { version: '1.1', uniqueKeys: false }), keysWhole)
  }
  t.throws(() => pyYaml(Number.NaN as Json), RangeError)
  t.end()
})

const usage = (n: number) => ({
  prompt_tokens: 1000 + n,
  completion_tokens: 50,
  prompt_tokens_details: { cached_tokens: 100 * n },
  completion_tokens_details: { reasoning_tokens: 7 },
})
const call = (n: number, commands: readonly string[]) => ({
  role: 'assistant',
  content: `Step ${n}`,
  extra: {
    actions: commands.map((command, at) => ({ command, tool_call_id: `call_${n}_${at}` })),
    cost: 0.5,
    timestamp: 1_700_000_000 + n,
    response: { usage: usage(n), choices: [] },
  },
})
const observed = (id: string, returncode: number, raw_output: string, exception_info = '') => ({
  role: 'tool',
  tool_call_id: id,
  content: '…',
  extra: { raw_output, returncode, exception_info },
})
const toolForm = {
  trajectory_format: 'mini-swe-agent-1.1',
  info: {
    mini_version: '2.4.6',
    exit_status: 'Submitted',
    submission: 'patch',
    model_stats: { api_calls: 4, instance_cost: 2 },
    config: { agent: { step_limit: 20 } },
  },
  messages: [
    { role: 'system', content: 'S' },
    { role: 'user', content: [{ type: 'text', text: 'U' }] },
    call(0, ['ls', 'cat x']),
    observed('call_0_1', 1, 'no x\n'),
    observed('call_0_0', 0, 'x\n'),
    {
      role: 'user',
      content: 'Tool call error',
      extra: {
        interrupt_type: 'FormatError',
        cost: 0.5,
        response: {
          usage: usage(1),
          choices: [{ message: { role: 'assistant', content: 'no call' } }],
        },
      },
    },
    call(2, ['sleep 99']),
    observed('call_2_0', -1, 'partial', 'timed out'),
    call(3, ['echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT', 'never run']),
    observed('call_3_0', -1, '', 'action was not executed'),
    { role: 'exit', content: 'patch', extra: { exit_status: 'Submitted', submission: 'patch' } },
  ],
}
const bytes = (value: unknown) => Buffer.from(JSON.stringify(value))

void t.test('a trajectory of tool calls is read: steps, commands, tokens, end', (t) => {
  const read = readTrajectory(bytes(toolForm))
  t.match(read, {
    kind: 'whole',
    trajectory: {
      version: '2.4.6',
      exitStatus: 'Submitted',
      submission: 'patch',
      calls: 4,
      costUsd: 2,
      inputTokens: 4006,
      cachedInputTokens: 600,
      outputTokens: 200,
      prompt: { system: 'S', user: 'U' },
      config: { agent: { step_limit: 20 } },
      steps: [
        {
          n: 1,
          text: 'Step 0',
          time: '2023-11-14T22:13:20.000Z',
          commands: [
            { command: 'ls', returnCode: 0, output: 'x\n' },
            { command: 'cat x', returnCode: 1, output: 'no x\n' },
          ],
          formatError: false,
          reasoningTokens: 7,
        },
        { n: 2, text: 'no call', commands: { length: 0 }, formatError: true, inputTokens: 1001 },
        { n: 3, commands: [{ command: 'sleep 99', returnCode: -1, output: 'partial' }] },
        { n: 4, commands: [{ returnCode: null }, { command: 'never run', returnCode: null }] },
      ],
    },
  })
  t.end()
})

void t.test('text form, older files and other shapes are read as far as they go', (t) => {
  const textForm = {
    trajectory_format: 'mini-swe-agent-1',
    info: { exit_status: 'LimitsExceeded' },
    messages: [
      { role: 'system', content: 'S' },
      { role: 'user', content: 'U' },
      {
        role: 'assistant',
        content: 'THOUGHT',
        extra: { actions: [{ command: 'ls' }], response: 'a repr string' },
      },
      { role: 'user', content: '<returncode>0', extra: { raw_output: 'out', returncode: 0 } },
    ],
  }
  t.match(readTrajectory(bytes(textForm)), {
    trajectory: {
      exitStatus: 'LimitsExceeded',
      version: null,
      calls: null,
      steps: [
        {
          text: 'THOUGHT',
          commands: [{ command: 'ls', returnCode: 0, output: 'out' }],
          outputTokens: 0,
        },
      ],
    },
  })
  const stopped = {
    trajectory_format: 'mini-swe-agent-1.1',
    info: { exit_status: '' },
    messages: [],
  }
  t.match(readTrajectory(bytes(stopped)), {
    kind: 'whole',
    trajectory: { exitStatus: '', steps: { length: 0 } },
  })
  const odd = {
    trajectory_format: 'mini-swe-agent-1.1',
    messages: [
      null,
      3,
      {
        role: 'assistant',
        content: null,
        extra: { actions: [{ command: 5 }, null], timestamp: 'x', cost: 'y' },
      },
    ],
  }
  t.match(readTrajectory(bytes(odd)), {
    trajectory: {
      steps: [{ commands: [{ command: '5' }, { command: 'null' }], costUsd: 0, time: null }],
    },
  })
  t.match(readTrajectory(bytes({ trajectory_format: 'other-9' })), {
    kind: 'unknown-format',
    message: /"other-9"/,
  })
  t.match(readTrajectory(bytes([])), { kind: 'unknown-format' })
  t.end()
})

void t.test('a torn file is told as torn, wherever it was cut, and never throws', (t) => {
  const whole = bytes(toolForm)
  const random = new Random(9)
  for (const at of [
    0,
    1,
    whole.length - 1,
    ...Array.from({ length: 60 }, () => random.int(2, whole.length - 2)),
  ])
    t.equal(readTrajectory(whole.subarray(0, at)).kind, 'torn', `cut at ${at}`)
  for (let round = 0; round < 100; round++) {
    const bent = Buffer.from(whole)
    bent.writeUInt8(random.int(0, 255), random.int(0, bent.length - 1))
    t.match(readTrajectory(bent).kind, /^(whole|torn|unknown-format)$/)
  }
  t.end()
})

void t.test('ATIF: ids count up, every observation has its call, totals are sums', (t) => {
  const read = readTrajectory(bytes(toolForm))
  if (read.kind !== 'whole') throw new Error(read.message)
  const meta = {
    session: 's',
    agent: 'mini-swe-agent',
    version: '2.4.6',
    model: 'm',
    instruction: 'I',
    atif: '1.7' as const,
  }
  const atif = atifFromTrajectory(read.trajectory, meta)
  t.strictSame(
    atif.steps.map((step) => step['step_id']),
    [1, 2, 3, 4, 5, 6],
  )
  t.strictSame(
    atif.steps.map((step) => step['source']),
    ['system', 'user', 'agent', 'agent', 'agent', 'agent'],
  )
  t.match(atif, {
    schema_version: 'ATIF-v1.7',
    agent: { model_name: 'm' },
    final_metrics: {
      total_prompt_tokens: 4006,
      total_completion_tokens: 200,
      total_cached_tokens: 600,
      total_steps: 6,
    },
  })
  t.strictSame(atifProblems(atif), [])
  t.match(atif.steps[2], {
    llm_call_count: 1,
    tool_calls: [
      { tool_call_id: 'call_3_1', function_name: 'bash', arguments: { command: 'ls' } },
      {},
    ],
    observation: {
      results: [{ source_call_id: 'call_3_1', content: 'x\n' }, { source_call_id: 'call_3_2' }],
    },
  })
  t.notOk('observation' in (atif.steps[5] ?? {}), 'what was not run has no observation')

  const step = {
    step: 1,
    time: '2025-01-01T00:00:00.000Z',
    text: null,
    commands: [
      {
        exec: 'e',
        command: 'make',
        exit: { code: 0 },
        cause: 'exited',
        startedAt: '',
        durationMs: 1,
        outputBytes: 9000,
        head: 'H',
        tail: 'T',
      },
    ],
    tokens: null,
    costUsd: 0,
    denied: [{ seq: 4, protocol: 'tls', target: 'x.example', reason: 'no_sni', count: 2 }],
  }
  const seen = atifFromSteps([step], { ...meta, model: null, atif: '1.8' })
  t.strictSame(atifProblems(seen), [])
  t.match(seen, {
    schema_version: 'ATIF-v1.8',
    steps: [
      { source: 'user', message: 'I' },
      {
        observation: { results: [{ content: /^H\n\[… 9000 bytes in all …\]\nT$/ }] },
        llm_call_count: 0,
        extra: { denied: [{ target: 'x.example', count: 2 }] },
      },
    ],
  })
  const four = Array.from({ length: 4 }, (_, n) => ({ ...step, step: n + 1 }))
  t.match(
    atifFromTrajectory(read.trajectory, meta, four).steps[3],
    { extra: { denied: [{ reason: 'no_sni' }] } },
    'refusals stand beside what the harness tells of the same step',
  )
  t.end()
})
