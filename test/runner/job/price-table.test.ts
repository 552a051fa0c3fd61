import t from 'tap'
import { costOf } from '../../../daemon/protocol/model-cost.ts'
import { miniCommand, miniConfig, miniFiles } from '../../../runner/harness/mini-swe-agent.ts'
import { loadConfiguration, settingsOf } from '../../../runner/job/configuration.ts'
import { Scratch, failureOf } from '../support/scratch.ts'

const table = `version: 1
asOf: 2025-11-29
source: https://provider.example/prices
models:
  acme-1: {inputPerMillionUsd: 3, cachedInputPerMillionUsd: 0.3, cacheWriteInputPerMillionUsd: 3.75, outputPerMillionUsd: 15}
  open/weights-8b: {inputPerMillionUsd: 0.1, cachedInputPerMillionUsd: 0.1, outputPerMillionUsd: 0.4, estimate: true, asOf: 2025-10-01}
`
const model = (name: string, kind = 'openai', prices = 'prices: ../prices.yaml') => `model:
  name: ${name}
  upstream: {kind: ${kind}, baseUrl: "https://provider.example/v1", key: {env: TEST_KEY}}
  ${prices}
`
const written =
  'price: {inputPerMillionUsd: 3, cachedInputPerMillionUsd: 0.3, outputPerMillionUsd: 15}'

void t.test('a price is taken from a dated table, and an estimate is marked as one', async (t) => {
  await using scratch = await Scratch.make()
  await scratch.write('prices.yaml', table)
  const load = async (text: string) => loadConfiguration(await scratch.write('c/c.yaml', text))
  const acme = await load(model('acme-1'))
  t.strictSame(acme.model?.price, {
    asOf: '2025-11-29',
    source: 'https://provider.example/prices',
    inputPerMillionUsd: 3,
    cachedInputPerMillionUsd: 0.3,
    cacheWriteInputPerMillionUsd: 3.75,
    outputPerMillionUsd: 15,
  })
  const open = await load(model('open/weights-8b'))
  t.match(open.model?.price, { estimate: true, asOf: '2025-10-01', outputPerMillionUsd: 0.4 })
  t.match(settingsOf(open), { model: { price: { estimate: true } } }, 'and the plan says so')
  t.notMatch(JSON.stringify(settingsOf(open)), 'prices.yaml', 'where the table lay is no setting')
  await scratch.write('prices.yaml', table.replace('0.4', '0.5'))
  t.not((await load(model('open/weights-8b'))).digest, open.digest, 'a price is part of the plan')
  t.equal((await load(model('acme-1'))).digest, acme.digest, 'that of another model is not')
  const used = {
    inputTokens: 1000,
    cachedInputTokens: 600,
    cacheWriteInputTokens: 300,
    outputTokens: 10,
  }
  // 100 * 3 + 600 * 0.3 + 300 * 3.75 + 10 * 15 = 1755 per million
  if (acme.model !== null) t.equal(costOf(used, acme.model.price), 0.001755)
})

void t.test('a price that is missing, twice there or incomplete is an error', async (t) => {
  await using scratch = await Scratch.make()
  await scratch.write('prices.yaml', table)
  const failure = async (text: string) =>
    (await failureOf(async () => loadConfiguration(await scratch.write('c/c.yaml', text)))).message
  t.match(
    await failure(model('m', 'openai', '')),
    /c\.yaml: model\.price: write the price down, or/,
  )
  t.match(await failure(model('acme-1', 'openai', `prices: x\n  ${written}`)), /and not both/)
  t.match(await failure(model('m')), /prices\.yaml: has no price of "m"; add it under models/)
  t.match(await failure(model('constructor')), /has no price of "constructor"/)
  t.match(await failure(model('m', 'openai', 'prices: no.yaml')), /no\.yaml: can't read the table/)
  const wants =
    /model\.price\.cacheWriteInputPerMillionUsd: is missing; an upstream of kind anthropic/
  t.match(await failure(model('open/weights-8b', 'anthropic')), wants)
  t.match(await failure(model('acme-1', 'anthropic', written)), wants)
  await scratch.write('prices.yaml', table.replace('asOf: 2025-11-29\n', ''))
  t.match(await failure(model('acme-1')), /prices\.yaml: asOf: /, 'a table without a date')
  await scratch.write('prices.yaml', table.replace('cachedInputPerMillionUsd: 0.3, ', ''))
  t.match(await failure(model('acme-1')), /models\.acme-1\.cachedInputPerMillionUsd: /)
})

void t.test('mini-SWE-agent speaks the API of its upstream', async (t) => {
  await using scratch = await Scratch.make()
  await scratch.write('prices.yaml', table)
  const path = await scratch.write('c/c.yaml', model('acme-1', 'anthropic'))
  const { model: settings, limits } = await loadConfiguration(path)
  if (settings === null) throw new Error('the configuration has a model')
  const input = { instruction: 'x', model: settings, limits, workdir: '/w' }
  t.equal(miniConfig(input).model.model_name, 'anthropic/acme-1')
  t.match(JSON.parse(miniFiles(input)['registry.json'] ?? ''), {
    'anthropic/acme-1': {
      litellm_provider: 'anthropic',
      cache_read_input_token_cost: 3e-7,
      cache_creation_input_token_cost: 3.75e-6,
    },
  })
  t.equal(miniCommand(settings).env['ANTHROPIC_BASE_URL'], 'http://127.0.0.1:8400')
  const replayed = { ...settings, upstream: { kind: 'replay', recordings: '/r' } } as const
  const named = (api: 'openai' | 'anthropic') =>
    miniConfig({ ...input, model: { ...replayed, upstream: { ...replayed.upstream, api } } }).model
      .model_name
  t.strictSame([named('openai'), named('anthropic')], ['openai/acme-1', 'anthropic/acme-1'])
})
