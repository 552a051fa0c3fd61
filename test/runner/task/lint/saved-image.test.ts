/** Reading what `docker save` writes: the layouts that engines use, and archives that are none. No engine. */
import { Readable } from 'node:stream'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import t from 'tap'
import { readSavedImage } from '../../../../runner/task/lint/image/saved-image.ts'
import { gitFacts } from '../../../../runner/task/lint/image/git-facts.ts'
import { tarEnd, tarFile, tarHeader } from '../../../../runner/trial/tar-writer.ts'
import { failureOf } from '../../support/scratch.ts'

const layer = (...files: readonly (readonly [string, string])[]): Buffer =>
  Buffer.concat([...files.map(([path, text]) => tarFile(path, Buffer.from(text))), tarEnd()])
const lower = layer(['a', 'lower a'], ['empty', ''])
const upper = layer(['.wh.a', ''], ['b', `upper b ${'x'.repeat(200_000)}`])
const config = JSON.stringify({ config: { Env: ['A=1'] }, history: [{ created_by: 'RUN x' }] })
const manifest = (configName: string, layers: readonly string[]): string =>
  JSON.stringify([{ Config: configName, RepoTags: null, Layers: layers }])

async function read(
  parts: readonly Buffer[],
  chunk = 1000,
): Promise<{ seen: string[]; layers: readonly string[] }> {
  const whole = Buffer.concat([...parts, tarEnd()])
  const chunks = Array.from({ length: Math.ceil(whole.length / chunk) }, (_, n) =>
    whole.subarray(n * chunk, (n + 1) * chunk),
  )
  const seen: string[] = []
  const saved = await readSavedImage(
    Readable.from(chunks),
    async ({ layer: name, header, bytes }) => {
      // Whoever takes no bytes leaves them.
      if (header.path === 'a') {
        seen.push(`${name} a`)
        return
      }
      let size = 0
      for await (const part of bytes) size += part.length
      seen.push(`${name} ${header.path} ${size}`)
    },
  )
  t.same(saved.config.config?.Env, ['A=1'])
  return { seen, layers: saved.layers }
}

void t.test('every layout of an engine is read, whatever its pieces', async (t) => {
  const old = [
    tarFile('1/layer.tar', lower),
    tarFile('2/layer.tar', upper),
    tarHeader({ path: '3/layer.tar', kind: 'symlink', mode: 0o777, target: '../1/layer.tar' }),
    tarFile('c.json', Buffer.from(config)),
    tarFile(
      'manifest.json',
      Buffer.from(manifest('c.json', ['2/layer.tar', '1/layer.tar', '3/layer.tar'])),
    ),
  ]
  for (const chunk of [511, 1 << 20])
    t.same(await read(old, chunk), {
      seen: ['1/layer.tar a', '1/layer.tar empty 0', '2/layer.tar .wh.a 0', '2/layer.tar b 200008'],
      layers: ['2/layer.tar', '1/layer.tar', '1/layer.tar'],
    })
  const oci = [
    tarFile(
      'manifest.json',
      Buffer.from(manifest('blobs/sha256/c', ['blobs/sha256/1', 'blobs/sha256/2'])),
    ),
    tarFile('blobs/sha256/c', Buffer.from(config)),
    tarFile('blobs/sha256/1', gzipSync(lower)),
    tarFile('blobs/sha256/2', zstdCompressSync(upper)),
    tarFile('oci-layout', Buffer.from('{"imageLayoutVersion": "1.0.0"}')),
  ]
  t.same((await read(oci)).seen, [
    'blobs/sha256/1 a',
    'blobs/sha256/1 empty 0',
    'blobs/sha256/2 .wh.a 0',
    'blobs/sha256/2 b 200008',
  ])
})

void t.test('half an image is a fault, never a clean one', async (t) => {
  const visit = async (): Promise<void> => {}
  const whole = Buffer.concat([tarFile('1/layer.tar', upper), tarEnd()])
  for (const [what, bytes, message] of [
    ['no manifest', whole, /has no manifest\.json/],
    ['cut off', whole.subarray(0, 100_000), /broken/],
    [
      'a layer that is cut off',
      Buffer.concat([tarFile('1', upper.subarray(0, 51_200)), tarEnd()]),
      /broken/,
    ],
    [
      'a broken layer',
      Buffer.concat([tarFile('1', gzipSync(upper).subarray(0, 200)), tarEnd()]),
      /broke off/,
    ],
  ] as const)
    t.match(
      await failureOf(() => readSavedImage(Readable.from([bytes]), visit)),
      { code: 'transfer_failed', message },
      what,
    )
})

void t.test('what a repository names is read as text', (t) => {
  const id = (digit: string): string => digit.repeat(40)
  const facts = gitFacts(
    new Map([
      ['HEAD', 'ref: refs/heads/main\n'],
      ['refs/heads/main', `${id('a')}\n`],
      [
        'packed-refs',
        `# pack-refs with: peeled\n${id('b')} refs/heads/main\n${id('c')} refs/tags/v2\n^${id('d')}\n`,
      ],
      ['refs/pull/7/head', `${id('e')}\n`],
      ['logs/HEAD', `${id('0')} ${id('a')} A <a@b> 1 +0000\tclone: from x\n`],
      ['MERGE_HEAD', `${id('f')}\n`],
      ['rebase-merge/orig-head', `${id('1')}\n`],
      ['worktrees/w/HEAD', `${id('2')}\n`],
      ['objects/info/alternates', '# comment\n/elsewhere\n'],
      [
        'config',
        '[core]\n\tbare = false\n[remote "up"]\n\turl = https://u:p@h.example/r\n[branch "x"]\n\tremote = up\n',
      ],
    ]),
  )
  t.equal(facts.head, id('a'), 'a loose ref wins over a packed one')
  t.same(facts.named.map(({ rule, oid, where }) => `${rule} ${oid[0]} ${where}`).toSorted(), [
    'git-future-ref a branch main',
    'git-future-ref c tag v2 (packed-refs)',
    'git-future-ref e ref refs/pull/7/head',
    'git-pseudo-ref 1 rebase-merge/orig-head',
    'git-pseudo-ref f MERGE_HEAD',
    'git-reflog a logs/HEAD',
    'git-worktree 2 worktree w',
  ])
  t.same(facts.remotes, ['up (https://…@h.example/r)'])
  t.same(facts.alternates, ['/elsewhere'])
  t.end()
})
