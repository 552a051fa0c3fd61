import t from 'tap'
import { huggingFaceRepoSchema } from '../../../policy/hugging-face.ts'
import { policySchema } from '../../../policy/policy.ts'
import { huggingFaceEnvironment, leasePolicy } from '../../../runner/trial/hugging-face.ts'
import { proxyEnvironment } from '../../../runner/trial/proxy-environment.ts'

const commit = 'a'.repeat(40)
const artifact = (repo: string, files: string[], maxBytes?: number) =>
  huggingFaceRepoSchema.parse({ repo, revision: commit, files, ...(maxBytes ? { maxBytes } : {}) })

t.test("a task's artifacts join what the configuration opens", async (t) => {
  const plain = policySchema.parse({ version: 1, connect: { allow: ['a.example'] } })
  t.equal(leasePolicy(plain, []), plain, 'nothing pinned, nothing changed')
  const joined = leasePolicy(plain, [artifact('acme/tiny', ['*.json'], 10)])
  t.same(joined.connect, plain.connect)
  t.same(joined.huggingface, {
    tunnel: false,
    repos: [{ repo: 'acme/tiny', revision: commit, files: ['*.json'], maxBytes: 10 }],
  })
  const both = leasePolicy(joined, [
    artifact('acme/tiny', ['*.json', '*.gguf']),
    artifact('acme/b', ['*']),
  ])
  t.same(
    both.huggingface?.repos.map(({ repo, files }) => [repo, files]),
    [
      ['acme/tiny', ['*.json', '*.gguf']],
      ['acme/b', ['*']],
    ],
  )
  t.ok(policySchema.safeParse(both).success, 'and is a policy again')
  t.same(joined.huggingface?.repos[0]?.files, ['*.json'], 'the first is as it was')
})

t.test('libraries are pointed to the gateway only where there is one', async (t) => {
  const closed = policySchema.parse({ version: 1 })
  t.same(huggingFaceEnvironment(closed), {})
  const open = leasePolicy(closed, [artifact('acme/tiny', ['*'])])
  t.match(huggingFaceEnvironment(open), {
    HF_ENDPOINT: 'http://127.0.0.1:8401',
    HF_HUB_DISABLE_XET: '1',
    NO_PROXY: /127\.0\.0\.1/,
  })
  t.notOk('HF_TOKEN' in huggingFaceEnvironment(open))
  t.same(proxyEnvironment(open), {}, 'no proxy for it')
  const tunnel = policySchema.parse({ version: 1, huggingface: { tunnel: true } })
  t.match(proxyEnvironment(tunnel), { HTTPS_PROXY: 'http://127.0.0.1:3128' })
  t.same(huggingFaceEnvironment(tunnel), {}, 'a client in a tunnel asks the Hub itself')
})
