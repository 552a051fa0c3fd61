import { execFile } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import {
  HubWorld,
  upstreamToken,
  type LeaseGateway,
} from '../../daemon/gateway/hugging-face/world.ts'
import { large } from '../../support/hub.ts'
import { HubClient, installed, type ClientName } from './clients.ts'
import { reading, refused, resuming, transformersLoad } from './programs.ts'
import { tinyModel } from './tiny-model.ts'

const run = promisify(execFile)

interface Scene extends AsyncDisposable {
  readonly world: HubWorld
  readonly lease: LeaseGateway
  readonly client: HubClient
  readonly commit: string
}

async function scene(name: ClientName): Promise<Scene> {
  const packages = await installed(name)
  await using undo = new AsyncDisposableStack()
  const world = undo.use(await HubWorld.open({ lingerMs: 100 }))
  const { standIn } = world
  standIn.pageSize = 3
  const commit = standIn.add('acme/tiny', tinyModel())
  standIn.add('acme/gated', { 'config.json': '{}' }, { gated: true })
  standIn.add('acme/other', tinyModel())
  standIn.add('acme/large', { 'big.safetensors': large(24_000_000) })
  standIn.add('acme/unmade', { 'config.json': '{}' })
  const lease = undo.use(
    await world.lease([
      { repo: 'acme/tiny', revision: commit },
      { repo: 'acme/gated', revision: 'main' },
      { repo: 'acme/large', revision: 'main' },
      { repo: 'acme/gone', revision: 'a'.repeat(40) },
      { repo: 'acme/unmade', revision: 'b'.repeat(40) },
    ]),
  )
  const home = path.join(world.folder, 'home')
  await mkdir(home)
  const owned = undo.move()
  return {
    world,
    lease,
    commit,
    client: new HubClient(packages, lease.endpoint, home),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

/** What a policy of the default files lets through, and its digests. */
function expected({ world }: Scene): Record<string, string> {
  const files = world.standIn.repos.get('acme/tiny')?.files ?? new Map<string, { sha256: string }>()
  return Object.fromEntries(
    [...files]
      .filter(([name]) => !name.endsWith('.py'))
      .map(([name, { sha256 }]) => [name, sha256]),
  )
}

for (const version of ['hub-2.4.0', 'hub-1.28.0'] as const) {
  t.test(`${version} reads what is pinned: snapshots, files, listings`, async (t) => {
    await using on = await scene(version)
    const { client, commit, lease, world } = on
    const files = expected(on)
    const seen = (await client.python(reading, commit)) as Record<string, unknown>
    t.same(seen['snapshot'], files, 'a whole snapshot, over pages of the Hub')
    t.same(seen['again'], files)
    t.match(seen['file'], /"llama"/)
    t.same(seen['exists'], [true, false])
    t.same(seen['files'], Object.keys(files).toSorted())
    t.same(seen['tree'], [...Object.keys(files), 'sub', 'sub/folder'].toSorted())
    t.notOk((seen['top'] as string[]).includes('sub/folder/extra.json'))
    const { sha256, content } = world.standIn.file('acme/tiny', 'model.safetensors')
    t.same(
      (seen['paths'] as unknown[][]).find(([name]) => name === 'model.safetensors'),
      ['model.safetensors', content.size, sha256, null],
    )
    t.same(seen['info'], ['acme/tiny', commit, Object.keys(files).toSorted()])
    t.same(seen['refs'], [['main', commit]])
    t.equal(seen['repo_exists'], true)
    t.same(seen['tensors'], { F32: 32 })
    t.same(
      lease.decisions().filter((one) => one.startsWith('deny')),
      [],
      'and not one request of it was refused',
    )
    t.equal(world.cache.stats().misses, Object.keys(files).length, 'each file was fetched once')

    const cli = await client.hf(
      'download',
      'acme/tiny',
      '--local-dir',
      path.join(world.folder, 'local'),
    )
    t.equal(cli.code, 0, cli.stderr)
    t.match(cli.stdout, /local/)
  })

  t.test(`${version} goes on where a broken connection left off`, async (t) => {
    await using on = await scene(version)
    const { world, lease, client } = on
    // Past the client's first 10 MiB; then the Hub is down until the gateway has given up.
    world.standIn.troubles.push(
      { kind: 'cut', after: 13_000_000 },
      ...Array.from({ length: 5 }, () => ({ kind: 'status', status: 503 }) as const),
    )
    const sha = await client.python(resuming, 'big.safetensors')
    t.equal(sha, world.standIn.file('acme/large', 'big.safetensors').sha256)
    t.ok(
      world.standIn.fileRequests.some(({ headers }) => headers.range !== undefined),
      'the gateway asks the Hub for the rest',
    )
    t.match(
      lease.closes().map(({ detail }) => detail),
      /206 /,
      'and the client the gateway',
    )
    t.ok(world.standIn.bytesSent < 26_000_000, 'nothing much was fetched twice')
  })

  t.test(`${version} shows its user what was refused and why`, async (t) => {
    await using on = await scene(version)
    const { client, lease, world } = on
    const seen = (await client.python(refused)) as Record<string, [type: string, text: string]>
    const rows: [name: string, type: RegExp, text: RegExp][] = [
      ['gated', /GatedRepoError|LocalEntryNotFound/, /authorized list/],
      ['gated_snapshot', /GatedRepoError/, /authorized list/],
      [
        'gone',
        /RepositoryNotFound|LocalEntryNotFound/,
        /Repository Not Found|Repository not found/,
      ],
      ['revision', /RevisionNotFound|LocalEntryNotFound/, /Revision Not Found|Invalid rev id/],
      ['absent', /EntryNotFound/, /Entry Not Found|not in acme\/tiny/],
      ['file', /./, /closedbook: file_not_allowed: modeling_tiny\.py/],
      ['repo', /./, /closedbook: repo_not_allowed: acme\/other/],
      ['info', /HfHubHTTPError/, /closedbook: repo_not_allowed: acme\/other/],
      ['other_revision', /HfHubHTTPError/, /closedbook: revision_not_allowed/],
      ['dataset', /./, /closedbook: path_denied: not served here: datasets/],
      ['space', /HfHubHTTPError/, /closedbook: path_denied: not served here: spaces/],
      ['search', /HfHubHTTPError/, /closedbook: path_denied: not served here: the search/],
      ['upload', /HfHubHTTPError/, /closedbook: write_denied/],
      ['create', /HfHubHTTPError/, /closedbook: write_denied/],
      ['commits', /HfHubHTTPError/, /closedbook: path_denied: not served here: commits/],
    ]
    for (const [name, type, text] of rows) {
      t.match(seen[name]?.[0], type, `${name}: the exception`)
      t.match(seen[name]?.[1], text, `${name}: the words`)
    }
    t.same(seen['gone_exists'], false)

    const commands: [args: string[], words: RegExp][] = [
      [['download', 'acme/other'], /closedbook: repo_not_allowed: acme\/other/],
      [['download', 'acme/tiny', 'modeling_tiny.py'], /closedbook: file_not_allowed/],
      [['download', '--repo-type', 'dataset', 'acme/data'], /closedbook: path_denied: .*datasets/],
      [['download', 'acme/gated'], /requires approval|Access denied|restricted/i],
    ]
    const ran = await Promise.all(commands.map(async ([args]) => client.hf(...args)))
    for (const [index, [args, words]] of commands.entries()) {
      t.not(ran[index]?.code, 0, args.join(' '))
      t.match(ran[index]?.stderr, words, args.join(' '))
    }
    t.notMatch(JSON.stringify([seen, ran, lease.audit]), upstreamToken)
    const asked = world.standIn.requests.map(({ url }) => url)
    t.notMatch(
      asked,
      /acme\/other|acme\/data|datasets|spaces|search/,
      'the Hub heard nothing of it',
    )
  })
}

t.test('transformers loads a tiny model through the gateway', async (t) => {
  await using on = await scene('transformers')
  t.same(await on.client.python(transformersLoad), ['llama', 8, [1, 2], { 'embed.weight': [4, 8] }])
  t.same(
    on.lease.decisions().filter((one) => /repo|write|bad/.test(one)),
    [],
  )
})

t.test('git and git-lfs are refused with the reason where their user sees it', async (t) => {
  await using on = await scene('hub-2.4.0')
  const { endpoint } = on.lease
  const git = async (...args: string[]): Promise<string> =>
    run('git', args, { env: on.client.env }).then(
      () => 'it worked',
      ({ stderr }: { stderr: string }) => stderr,
    )
  t.match(
    await git('clone', `${endpoint}/acme/tiny`, path.join(on.world.folder, 'a')),
    /closedbook: path_denied: not served here: git/,
  )
  t.match(
    await git('ls-remote', `${endpoint}/acme/tiny.git`),
    /closedbook: path_denied: not served here: git/,
  )
  // As git-lfs asks; it prints the message of an answer of its own media type alone.
  const lfsType = 'application/vnd.git-lfs+json'
  const batch = await fetch(`${endpoint}/acme/tiny.git/info/lfs/objects/batch`, {
    method: 'POST',
    headers: { accept: lfsType, 'content-type': lfsType },
    body: JSON.stringify({ operation: 'download', objects: [{ oid: 'a'.repeat(64), size: 1 }] }),
  })
  t.equal(batch.headers.get('content-type'), lfsType)
  t.match(await batch.json(), { message: /closedbook: path_denied: not served here: git/ })
  t.same(new Set(on.lease.decisions()), new Set(['deny path_denied']))
})
