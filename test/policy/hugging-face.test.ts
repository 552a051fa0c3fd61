import t from 'tap'
import { decide } from '../../policy/decide.ts'
import { matchesFileGlob } from '../../policy/file-glob.ts'
import { parseAuthority } from '../../policy/host.ts'
import { huggingFaceHosts, tunnelHosts } from '../../policy/hugging-face-hosts.ts'
import { parseHubRequest } from '../../policy/hugging-face-route.ts'
import {
  decideHubRequest,
  defaultArtifactFiles,
  huggingFaceRepoSchema,
  type Pin,
} from '../../policy/hugging-face.ts'
import { policyHash } from '../../policy/hash.ts'
import { policySchema } from '../../policy/policy.ts'

const commit = '0123456789abcdef0123456789abcdef01234567'
const other = 'fedcba9876543210fedcba9876543210fedcba98'
const pin = (repo: string, revision: string, at: string, files?: string[]): Pin => ({
  entry: huggingFaceRepoSchema.parse({ repo, revision, ...(files === undefined ? {} : { files }) }),
  commit: at,
})
const pins = [
  pin('acme/tiny', commit, commit),
  pin('acme/branch', 'release/v1', other, ['model-*.safetensors', 'onnx/**', 'cfg/*.json']),
]

const models = '/api/models/acme/tiny'
const rows: [method: string, target: string, expected: string, why: string][] = [
  // what a download needs
  ['HEAD', '/acme/tiny/resolve/main/config.json', 'allow allowed_artifact', 'main is the pin'],
  ['GET', '/acme/tiny/resolve/main/config.json', 'allow allowed_artifact', 'the bytes'],
  ['GET', `/acme/tiny/resolve/${commit}/model.safetensors`, 'allow allowed_artifact', 'by commit'],
  ['GET', `/acme/tiny/resolve/${commit.slice(0, 7)}/a.json`, 'allow allowed_artifact', 'short id'],
  ['GET', '/acme/tiny/resolve/main/sub/dir/a.json', 'allow allowed_artifact', 'in a folder'],
  ['GET', '/acme/tiny/resolve/main/a.json?download=true', 'allow allowed_artifact', 'a query'],
  ['GET', '/acme/tiny/resolve/main/a%20b.json', 'allow allowed_artifact', 'an encoded name'],
  [
    'GET',
    `/api/resolve-cache/models/acme/tiny/${commit}/a.json?etag=%22x%22`,
    'allow allowed_artifact',
    'the relative redirect of small files',
  ],
  ['GET', models, 'allow allowed_artifact', 'info'],
  ['GET', `${models}/`, 'allow allowed_artifact', 'a slash at the end'],
  ['GET', `${models}/revision/main`, 'allow allowed_artifact', 'info at a revision'],
  ['GET', `${models}/tree/${commit}?recursive=true&expand=false`, 'allow allowed_artifact', 'tree'],
  ['GET', `${models}/tree/main/sub%2Fdir`, 'allow allowed_artifact', 'tree of a nested folder'],
  ['POST', `${models}/paths-info/main`, 'allow allowed_artifact', 'a POST that reads'],
  ['GET', `${models}/refs`, 'allow allowed_artifact', 'refs'],
  [
    'GET',
    '/acme/branch/resolve/release%2Fv1/model-1.safetensors',
    'allow allowed_artifact',
    'a branch with a slash',
  ],
  [
    'GET',
    '/acme/branch/resolve/refs%2Fheads%2Frelease%2Fv1/onnx/a/b.onnx',
    'allow allowed_artifact',
    'its full name',
  ],
  [
    'GET',
    `/acme/branch/resolve/${other}/cfg/a.json`,
    'allow allowed_artifact',
    'its frozen commit',
  ],
  // what clients ask unbidden
  ['GET', '/api/agent-harnesses', 'allow noise', 'asked by every hf command'],
  ['HEAD', '/api/telemetry/gradio/init', 'allow noise', 'telemetry'],
  ['POST', '/api/telemetry/x', 'allow noise', 'telemetry with a body'],
  ['GET', '/api/whoami-v2', 'allow noise', 'asked by some commands first'],
  ['POST', '/api/whoami-v2', 'deny write_denied', 'whoami is read only'],
  // other repositories, revisions, files
  ['GET', '/acme/tiny2/resolve/main/config.json', 'deny repo_not_allowed', 'a longer name'],
  ['GET', '/ACME/tiny/resolve/main/config.json', 'deny repo_not_allowed', 'another spelling'],
  ['GET', '/tiny/resolve/main/config.json', 'deny repo_not_allowed', 'a bare name'],
  ['GET', '/api/models/gpt2', 'deny repo_not_allowed', 'info of a bare name'],
  ['GET', '/api/models/gpt2/tree/main', 'deny repo_not_allowed', 'tree of a bare name'],
  ['GET', '/api/models/acme/secret/tree/main', 'deny repo_not_allowed', 'tree of another'],
  ['GET', `/acme/tiny/resolve/${other}/config.json`, 'deny revision_not_allowed', 'another commit'],
  [
    'GET',
    '/acme/tiny/resolve/refs%2Fpr%2F1/config.json',
    'deny revision_not_allowed',
    'a pull request',
  ],
  [
    'GET',
    `/acme/tiny/resolve/${commit.slice(0, 6)}/config.json`,
    'deny revision_not_allowed',
    'too short an id',
  ],
  ['GET', `${models}/tree/v1.0`, 'deny revision_not_allowed', 'a tag'],
  ['GET', '/acme/tiny/resolve/main/modeling_tiny.py', 'deny file_not_allowed', 'upstream code'],
  ['HEAD', '/acme/tiny/resolve/main/pytorch_model.bin', 'deny file_not_allowed', 'a pickle'],
  [
    'GET',
    '/acme/branch/resolve/main/other/cfg/a.json',
    'deny file_not_allowed',
    'a pattern with a slash is for the whole path',
  ],
  [
    'GET',
    '/acme/branch/resolve/main/cfg/deep/a.json',
    'deny file_not_allowed',
    'a star stays in its part',
  ],
  ['GET', '/acme/branch/resolve/main/onnx', 'deny file_not_allowed', 'a folder itself'],
  // writes
  ['POST', '/api/repos/create', 'deny write_denied', 'a new repository'],
  ['DELETE', '/api/repos/delete', 'deny write_denied', 'the end of one'],
  ['POST', `${models}/preupload/main`, 'deny write_denied', 'an upload'],
  ['POST', `${models}/commit/main`, 'deny write_denied', 'a commit'],
  ['PUT', `${models}/settings`, 'deny write_denied', 'settings'],
  ['POST', `${models}/discussions`, 'deny write_denied', 'a discussion'],
  ['PUT', '/acme/tiny/resolve/main/config.json', 'deny write_denied', 'a file'],
  ['GET', `${models}/xet-write-token/main`, 'deny write_denied', 'a token to write with'],
  ['POST', '/acme/tiny.git/git-receive-pack', 'deny write_denied', 'git push'],
  [
    'GET',
    '/acme/tiny/info/refs?service=git-receive-pack',
    'deny write_denied',
    'before a git push',
  ],
  ['POST', '/acme/tiny.git/info/lfs/objects/batch', 'deny path_denied', 'git-lfs, either way'],
  // other doors
  ['GET', '/acme/tiny/info/refs?service=git-upload-pack', 'deny path_denied', 'git clone'],
  ['GET', '/acme/tiny.git/info/refs', 'deny path_denied', 'git, the old way'],
  ['GET', `${models}/xet-read-token/main`, 'deny path_denied', 'Xet'],
  ['GET', `${models}/commits/main`, 'deny path_denied', 'history'],
  ['GET', '/acme/tiny/raw/main/config.json', 'deny path_denied', 'raw'],
  ['GET', '/acme/tiny/blob/main/config.json', 'deny path_denied', 'a page'],
  ['GET', '/acme/tiny', 'deny path_denied', 'the page of a repository'],
  ['GET', '/', 'deny path_denied', 'the front page'],
  ['GET', '/api/models?search=llama', 'deny path_denied', 'search'],
  ['GET', '/api/datasets/acme/tiny', 'deny path_denied', 'a dataset'],
  [
    'HEAD',
    '/datasets/acme/resolve/main/README.md',
    'deny path_denied',
    'a dataset, not an owner called datasets',
  ],
  ['GET', '/spaces/acme/tiny/resolve/main/app.json', 'deny path_denied', 'a Space'],
  ['GET', '/api/spaces/acme/tiny/secrets', 'deny path_denied', "a Space's secrets"],
  ['GET', '/buckets/acme/tiny/resolve/a.json', 'deny path_denied', 'a bucket'],
  ['GET', '/v2/acme/tiny/manifests/latest', 'deny path_denied', 'the container registry'],
  ['GET', '/papers/2401.00001.md', 'deny path_denied', 'a paper'],
  ['GET', '/api/daily_papers', 'deny path_denied', 'papers'],
  ['GET', '/api/collections', 'deny path_denied', 'collections'],
  ['POST', '/api/jobs/acme', 'deny write_denied', 'a job'],
  ['GET', '/mcp', 'deny path_denied', 'tools of the Hub'],
  ['GET', '/api/quicksearch?q=a', 'deny path_denied', 'quick search'],
  [
    'GET',
    `/api/resolve-cache/datasets/acme/tiny/${commit}/a.json`,
    'deny path_denied',
    'the cache of datasets',
  ],
  // what can't be read one way only
  [
    'GET',
    '/acme/tiny/resolve/main/../../../other/x/resolve/main/a.json',
    'deny bad_request',
    'dots',
  ],
  ['GET', '/acme/tiny/resolve/main/%2e%2e/a.json', 'deny bad_request', 'encoded dots'],
  [
    'GET',
    '/acme/tiny/resolve/main/a%2F..%2Fb.json',
    'deny bad_request',
    'dots behind encoded slashes',
  ],
  [
    'GET',
    '/acme/tiny/resolve/main/%252e%252e/a.json',
    'allow allowed_artifact',
    'encoded twice is a name: decoded once',
  ],
  ['GET', '/acme//tiny/resolve/main/a.json', 'deny bad_request', 'an empty part'],
  ['GET', '/acme/tiny/resolve/main/a%00.json', 'deny bad_request', 'NUL'],
  ['GET', '/acme/tiny/resolve/main/a%0d%0ab.json', 'deny bad_request', 'a line break'],
  ['GET', '/acme/tiny/resolve/main/a%5Cb.json', 'deny bad_request', 'a backslash'],
  ['GET', '/acme/tiny/resolve/main/%ff.json', 'deny bad_request', 'not UTF-8'],
  ['GET', '/acme/tiny/resolve/main/%zz.json', 'deny bad_request', 'no encoding at all'],
  [
    'GET',
    'http://huggingface.co/acme/tiny/resolve/main/a.json',
    'deny bad_request',
    'the absolute form',
  ],
  ['GET', `/acme/tiny/resolve/main/${'a'.repeat(4100)}.json`, 'deny bad_request', 'too long'],
  ['OPTIONS', '*', 'deny bad_request', 'no path'],
]

t.test('requests of the Hub are decided by route, repository, revision and file', async (t) => {
  for (const [method, target, expected, why] of rows) {
    const decision = decideHubRequest(pins, parseHubRequest(method, target))
    t.equal(
      `${decision.action} ${decision.reason}`,
      expected,
      `${method} ${target.slice(0, 80)}: ${why}`,
    )
    if (decision.action === 'deny') t.not(decision.message, '', 'with words for people')
  }
  t.equal(
    decideHubRequest([], parseHubRequest('GET', '/acme/tiny/resolve/main/a.json')).reason,
    'repo_not_allowed',
    'a policy without repositories opens none',
  )
})

t.test('a refusal names what may be asked instead', async (t) => {
  const words = (target: string): string =>
    decideHubRequest(pins, parseHubRequest('GET', target)).message
  t.match(words('/gpt2/resolve/main/config.json'), /\(acme\/tiny, acme\/branch\)/)
  t.match(words('/acme/tiny/resolve/v2/config.json'), new RegExp(commit))
  t.match(words('/acme/tiny/resolve/main/a.py'), /\*\.safetensors/)
})

const globs: [glob: string, path: string, matches: boolean, why: string][] = [
  ['*.json', 'a.json', true, 'a name'],
  ['*.json', 'deep/er/a.json', true, 'a pattern without a slash is for the name'],
  ['*', 'deep/er/a.bin', true, 'everything'],
  ['**', 'deep/er/a.bin', true, 'everything too'],
  ['config.json', 'xconfig.json', false, 'no part of a name'],
  ['config.json', 'configxjson', false, 'a dot is a dot'],
  ['sub/*.json', 'sub/a.json', true, 'in a folder'],
  ['sub/*.json', 'a/sub/a.json', false, 'the whole path'],
  ['sub/*.json', 'sub/b/a.json', false, 'a star stays in its part'],
  ['sub/**', 'sub/b/a.json', true, 'all below'],
  ['sub/**', 'sub', false, 'not itself'],
  ['**/a.json', 'a.json', true, 'no part at all'],
  ['**/a.json', 'b/c/a.json', true, 'any number of parts'],
  ['a/**/z.json', 'a/z.json', true, 'none between'],
  ['a/**/z.json', 'a/b/z.json/z.json', true, 'a name that comes twice'],
  ['model-?.bin', 'model-1.bin', true, 'one character'],
  ['model-?.bin', 'model-10.bin', false, 'not two'],
  ['*a*b*', 'xxaxxbxx', true, 'stars'],
  ['*a*b*', 'xxbxxaxx', false, 'in this order'],
  ['tokenizer.*', 'tokenizer.json', true, 'by the first part of a name'],
]

t.test('file patterns match names, or whole paths where they have a slash', async (t) => {
  for (const [glob, path, matches, why] of globs)
    t.equal(matchesFileGlob(glob, path), matches, `${glob} and ${path}: ${why}`)
  const started = performance.now()
  t.notOk(matchesFileGlob('*a*a*a*a*a*a*a*a*b', 'a'.repeat(4000)))
  t.ok(performance.now() - started < 500, 'a path made to be slow is not')
})

t.test('only a canonical policy is taken, and the message says how to write it', async (t) => {
  const refusal = (entry: object): string => {
    const parsed = policySchema.safeParse({
      version: 1,
      huggingface: { repos: [{ repo: 'acme/tiny', revision: commit, ...entry }] },
    })
    return parsed.success ? '' : parsed.error.issues.map(({ message }) => message).join('; ')
  }
  const table: [entry: object, message: RegExp][] = [
    [{ repo: 'https://huggingface.co/acme/tiny' }, /write "acme\/tiny"/],
    [{ repo: 'https://huggingface.co/acme/tiny/tree/main' }, /write "acme\/tiny"/],
    [{ repo: 'gpt2' }, /owner\/name/],
    [{ repo: 'datasets/tiny' }, /owner\/name/],
    [{ repo: 'api/tiny' }, /owner\/name/],
    [{ repo: 'acme/../tiny' }, /owner\/name/],
    [{ repo: 'acme/tiny.git' }, /owner\/name/],
    [{ revision: commit.toUpperCase() }, /40 hex digits in lower case/],
    [{ revision: commit.slice(0, 12) }, /whole commit/],
    [{ revision: '../main' }, /name of a branch or tag/],
    [{ files: [] }, /./],
    [{ files: ['/config.json'] }, /write "config.json"/],
    [{ files: ['onnx/'] }, /write "onnx\/\*\*"/],
    [{ files: ['a/../b'] }, /no empty/],
    [{ files: ['{a,b}.json'] }, /one entry for each/],
    [{ files: ['a**b'] }, /whole parts/],
    [{ maxBytes: 0 }, /./],
    [{ branch: 'main' }, /./],
  ]
  for (const [entry, message] of table) t.match(refusal(entry), message, JSON.stringify(entry))
  t.equal(refusal({ revision: 'refs/pr/1', files: ['*.gguf'], maxBytes: 5 }), '')
  const twice = [1, 2].map(() => ({ repo: 'acme/tiny', revision: 'main' }))
  t.notOk(policySchema.safeParse({ version: 1, huggingface: { repos: twice } }).success)
  const parsed = policySchema.parse({
    version: 1,
    huggingface: { repos: [{ repo: 'acme/tiny', revision: 'main' }] },
  })
  t.same(parsed.huggingface?.repos[0]?.files, defaultArtifactFiles)
  t.not(policyHash(parsed), policyHash(policySchema.parse({ version: 1 })), 'part of the digest')
})

t.test(
  'a tunnel opens the published hosts of the Hub to the proxy, and is off by default',
  async (t) => {
    const connect = (policy: object, host: string): string => {
      const { action, reason, rule } = decide(policySchema.parse({ version: 1, ...policy }), {
        kind: 'connect',
        target: parseAuthority(`${host}:443`),
        hostHeader: null,
        fault: null,
      })
      return `${action} ${reason} ${rule}`
    }
    const closed = { huggingface: { repos: [] } }
    const open = { huggingface: { tunnel: true } }
    for (const host of ['huggingface.co', 'cas-bridge.xethub.hf.co', 'us.aws.cdn.hf.co']) {
      t.equal(connect(closed, host), 'deny not_allowed_host default', host)
      t.equal(connect(open, host), 'allow allowed_host huggingface tunnel', host)
    }
    t.equal(connect(open, 'evil.huggingface.co'), 'deny not_allowed_host default', 'exact names')
    t.equal(
      connect({ ...open, connect: { deny: ['hf.co'] } }, 'hf.co'),
      'deny denied_host deny hf.co',
      'a deny rule wins',
    )
    t.match(huggingFaceHosts.asOf, /^\d{4}-\d\d-\d\d$/)
    for (const host of tunnelHosts) t.ok(parseAuthority(`${host}:443`).ok, `${host} is canonical`)
  },
)

t.test('whatever is asked, only pinned files are ever allowed', async (t) => {
  const random = generator(20_261_129)
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T
  const parts = [
    'acme',
    'tiny',
    'branch',
    'other',
    'resolve',
    'raw',
    'main',
    commit,
    other,
    'api',
    'models',
    'datasets',
    'tree',
    'refs',
    'a.json',
    'model-1.safetensors',
    'onnx',
    '..',
    '.',
    '',
    '%2e%2e',
    '%2F',
    'a%2Fb.json',
    '%00',
    '%',
    '\u00ff',
    'x.py',
    'resolve-cache',
    'info',
    'a.json?x=/../y',
    '#',
    ';',
  ]
  const good = [
    'acme/tiny/resolve/main/a.json',
    'acme/branch/resolve/main/onnx/x/y',
    `api/resolve-cache/models/acme/tiny/${commit}/sub/a.json`,
  ]
  let allowed = 0
  for (let round = 0; round < 30_000; round++) {
    const mutated = pick(good).split('/')
    for (let change = Math.floor(random() * 3); change > 0; change--)
      mutated.splice(Math.floor(random() * mutated.length), pick([0, 1, 2]), pick(parts))
    const target = `/${mutated.join('/')}`
    const asked = parseHubRequest(pick(['GET', 'HEAD', 'POST', 'PUT', 'DELETE']), target)
    const decision = decideHubRequest(pins, asked)
    if (decision.action === 'deny' || asked.route.kind !== 'file') continue
    allowed += 1
    const { repo, path } = asked.route
    const entry = pins.find((one) => one.entry.repo === repo)?.entry
    const named = entry?.files.some((glob) => matchesFileGlob(glob, path)) ?? false
    const plain = path.split('/').every((part) => !['', '.', '..'].includes(part))
    if (!named || !plain || !/^(?:GET|HEAD)$/.test(asked.method))
      t.fail(`${asked.method} ${target}`)
  }
  t.ok(allowed > 1000 && allowed < 29_000, `${allowed} of them were allowed`)
})

/** Mulberry32: the same requests in each run. */
function generator(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let value = Math.imul(state ^ (state >>> 15), 1 | state)
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value
    return ((value ^ (value >>> 14)) >>> 0) / 4_294_967_296
  }
}
