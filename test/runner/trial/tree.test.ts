import { Readable } from 'node:stream'
import t from 'tap'
import { parsePath, quoteForGit, showPath } from '../../../runner/trial/path-name.ts'
import type { Sandbox } from '../../../runner/trial/sandbox.ts'
import { readTar } from '../../../runner/trial/tar-reader.ts'
import { tarEnd, tarFile, tarHeader } from '../../../runner/trial/tar-writer.ts'
import { blobId, readBlobs, readTree, treeDigest } from '../../../runner/trial/tree.ts'

const limits = { maxEntries: 100, maxBytes: 1024 * 1024 }

/** Serves one archive, in chunks of an awkward size. */
function serving(
  tar: Buffer | (() => Readable),
  kind: 'directory' | 'symlink' = 'directory',
): Sandbox {
  const chunks = function* (bytes: Buffer): Generator<Buffer> {
    for (let at = 0; at < bytes.length; at += 700) yield bytes.subarray(at, at + 700)
  }
  return {
    lease: 'test',
    exec: () => Promise.reject(new Error('nothing is run here')),
    writeArchive: () => Promise.reject(new Error('nothing is written here')),
    readArchive: () =>
      Promise.resolve({ kind, tar: Buffer.isBuffer(tar) ? Readable.from(chunks(tar)) : tar() }),
  }
}

const root = tarHeader({ path: 'work', kind: 'directory', mode: 0o755 })
const archive = (...items: Buffer[]): Buffer => Buffer.concat([root, ...items, tarEnd()])

/** A header of a kind that the writer doesn't write. */
function special(path: string, type: string): Buffer {
  const header = tarHeader({ path, kind: 'file', mode: 0o644 })
  header.write(type, 156, 'latin1')
  header.fill(0x20, 148, 156)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${sum.toString(8).padStart(6, '0')}\0`, 148, 'latin1')
  return header
}

async function treeOf(tar: Buffer) {
  const reading = await readTree(serving(tar), '/work', limits)
  if (!reading.ok) throw new Error(reading.message)
  return reading.tree
}

t.test('names are bytes in every length, and come back as they were', async (t) => {
  const names = [
    'plain',
    'sp ace',
    'new\nline',
    'q"uote\\',
    'é as bytes \xc3\xa9',
    'not utf8 \xff\xfe',
    `${'d'.repeat(90)}/${'e'.repeat(90)}\xff`,
    'tab\t\x01',
  ]
  const tree = await treeOf(
    archive(...names.map((name) => tarFile(`work/${name}`, Buffer.from(name)))),
  )
  t.same([...tree.entries.keys()], names)
  for (const name of names) {
    t.equal(tree.entries.get(name)?.blob, blobId(Buffer.from(name)))
    t.equal(parsePath(showPath(name)), name, `${JSON.stringify(name)} is shown without loss`)
    t.match(quoteForGit(name), /^"[\x20-\x7e]*"$/)
  }
  t.equal(showPath('\xc3\xa9'), 'é')
  t.equal(showPath('a\xffb'), '"a\\377b"')
})

t.test('modes, links and hard links are as git has them; .git is left out', async (t) => {
  const tree = await treeOf(
    archive(
      tarHeader({ path: 'work/.git', kind: 'directory', mode: 0o755 }),
      tarFile('work/.git/config', Buffer.from('evil')),
      tarFile('work/run.sh', Buffer.from('#!'), 0o744),
      tarFile('work/group.sh', Buffer.from('#!'), 0o654),
      tarHeader({ path: 'work/link', kind: 'symlink', mode: 0o777, target: '../../etc\xff' }),
      tarHeader({ path: 'work/hard', kind: 'hardlink', mode: 0o744, target: 'work/run.sh' }),
      tarHeader({ path: 'work/stolen', kind: 'hardlink', mode: 0o644, target: 'work/.git/config' }),
      tarFile('work/sub/.git/HEAD', Buffer.from('x')),
      tarFile('work/sub/file', Buffer.from('in a nested repository')),
      tarFile('work/.GIT/x', Buffer.from('x')),
      tarHeader({ path: 'work/.gitmodules', kind: 'symlink', mode: 0o777, target: 'x' }),
      special('work/pipe', '6'),
      special('work/disk', '4'),
      special('work/contiguous', '7'),
      tarFile(`work/${'n/'.repeat(2100)}deep`, Buffer.from('x')),
    ),
  )
  t.same(
    [...tree.entries].map(([path, entry]) => `${path} ${entry.mode}`),
    [
      'run.sh 100755',
      'group.sh 100644',
      'link 120000',
      'hard 100755',
      'stolen 100644',
      'sub/file 100644',
      'contiguous 100644',
    ],
  )
  t.equal(tree.entries.get('hard')?.blob, tree.entries.get('run.sh')?.blob)
  t.equal(tree.entries.get('stolen')?.storedAt, '.git/config')
  t.same(
    tree.skipped.map(({ path }) => path.slice(0, 12)),
    ['.GIT/x', '.gitmodules', 'pipe', 'disk', 'n/n/n/n/n/n/'],
  )
})

t.test('the digest of a tree knows path, mode and content, and no order', async (t) => {
  const a = tarFile('work/a', Buffer.from('1'))
  const b = tarFile('work/b', Buffer.from('2'))
  const digest = async (...items: Buffer[]) => treeDigest((await treeOf(archive(...items))).entries)
  t.equal(await digest(a, b), await digest(b, a))
  t.not(await digest(a, b), await digest(a))
  t.not(await digest(a), await digest(tarFile('work/a', Buffer.from('1'), 0o755)))
})

t.test('what is no directory, or too large, is told before it is read whole', async (t) => {
  t.match(await readTree(serving(Buffer.alloc(1024), 'symlink'), '/work', limits), {
    ok: false,
    code: 'not_a_directory',
  })
  let sent = 0
  const endless = () =>
    Readable.from(
      (function* () {
        yield root
        yield tarHeader({ path: 'work/sparse', kind: 'file', mode: 0o644, size: 2 ** 40 })
        while (true) {
          sent += 65536
          yield Buffer.alloc(65536)
        }
      })(),
      { highWaterMark: 1 },
    )
  t.match(await readTree(serving(endless), '/work', limits), { ok: false, code: 'tree_too_large' })
  t.ok(sent < 10 * 65536, `the archive was left alone after ${sent} bytes`)
  const many = Array.from({ length: 101 }, (_, n) => tarFile(`work/${n}`, Buffer.alloc(0)))
  t.match(await readTree(serving(archive(...many)), '/work', limits), {
    ok: false,
    code: 'tree_too_large',
  })
})

const whole = archive(tarFile('work/a', Buffer.from('x'.repeat(600))))
const tampered = Buffer.from(whole)
tampered[600] = 0x41

for (const [name, bytes] of [
  ['empty', Buffer.alloc(0)],
  ['cut off in a header', whole.subarray(0, 700)],
  ['cut off in a file', whole.subarray(0, 1200)],
  ['cut off in the padding', whole.subarray(0, 1640)],
  ['cut off before the end mark', whole.subarray(0, whole.length - 1024)],
  ['with a damaged header', tampered],
  ['with a path that climbs out', archive(tarFile('work/../x', Buffer.from('x')))],
  ['with a path of another root', archive(tarFile('elsewhere/x', Buffer.from('x')))],
  ['with an empty component', archive(tarFile('work//x', Buffer.from('x')))],
] as const)
  t.test(`an archive ${name} is a fault of infrastructure, never a smaller tree`, async (t) => {
    await t.rejects(treeOf(bytes), { code: 'transfer_failed', blame: 'infra' })
  })

t.test('a stream that breaks is a fault of infrastructure', async (t) => {
  const breaking = () =>
    Readable.from(
      (function* () {
        yield whole.subarray(0, 600)
        throw new Error('ECONNRESET')
      })(),
    )
  await t.rejects(readTree(serving(breaking), '/work', limits), {
    code: 'transfer_failed',
    blame: 'infra',
  })
})

t.test('bytes that changed between two readings are a fault of infrastructure', async (t) => {
  const { entries } = await treeOf(whole)
  const read = async (tar: Buffer): Promise<number> => {
    let bytes = 0
    for await (const item of readBlobs(
      serving(tar),
      '/work',
      new Map([
        ...entries,
        ['weird\n', { mode: '100644', blob: blobId(Buffer.from('y')), size: 1 }],
      ]),
    ))
      if (Buffer.isBuffer(item)) bytes += item.length
    return bytes
  }
  const both = (text: string) =>
    archive(tarFile('work/a', Buffer.from(text)), tarFile('work/weird\n', Buffer.from('y')))
  t.equal(await read(both('x'.repeat(600))), 601)
  for (const tar of [both('x'.repeat(599)), both('y'.repeat(600)), whole])
    await t.rejects(read(tar), { code: 'transfer_failed', blame: 'infra' })
})

t.test('sizes beyond octal and padding after the end are read', async (t) => {
  const header = tarHeader({ path: 'work/a', kind: 'file', mode: 0o644, size: 3 })
  header.write('\x80', 124, 'latin1')
  header.fill(0, 125, 135)
  header[135] = 3
  header.fill(0x20, 148, 156)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${sum.toString(8).padStart(6, '0')}\0`, 148, 'latin1')
  const bytes = Buffer.concat([
    root,
    header,
    Buffer.from('abc'),
    Buffer.alloc(509),
    tarEnd(),
    Buffer.alloc(8192),
  ])
  const seen: (string | number)[] = []
  for await (const item of readTar(Readable.from([bytes])))
    seen.push(Buffer.isBuffer(item) ? item.toString() : `${item.path} ${item.size}`)
  t.same(seen, ['work 0', 'work/a 3', 'abc'])
})
