import { execFileSync } from 'node:child_process'
import {
  chmod,
  copyFile,
  mkdir,
  readFile,
  rename,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import t from 'tap'
import { buildImages, imageTags, readRecipes, recipeLabel } from '../../images/build.ts'
import type { ImageProgress } from '../../images/build.ts'
import { caBundle, pipConfig, proxyArguments } from '../../images/client-config.ts'
import { packContext, readContext, recipeHash, textEntry } from '../../images/context.ts'
import { digests } from '../../images/digests.ts'
import { feed } from '../../images/feed.ts'
import { outsideImages } from '../../images/dockerfile.ts'
import { buildTaskImage } from '../../images/task-image.ts'
import { ensureTools, isStaticElf } from '../../images/tools.ts'
import { filesOf, ImageEngine } from './image-engine.ts'

const hashOf = async (folder: string, ...words: string[]): Promise<string> =>
  recipeHash(await readContext(folder), words)

t.test('a recipe’s hash follows bytes, names and modes, and nothing of the checkout', async (t) => {
  const folder = t.testdir({ a: 'one', b: 'two', sub: { c: t.fixture('symlink', '../a') } })
  const at = (name: string): string => join(folder, name)
  let last = await hashOf(folder)
  const same: readonly [why: string, change: () => Promise<unknown>][] = [
    ['a time stamp', () => utimes(at('a'), 1, 1)],
    ['a umask', () => chmod(at('a'), 0o600)],
    ['a umask of folders', () => chmod(at('sub'), 0o700)],
  ]
  for (const [why, change] of same) {
    await change()
    t.equal(await hashOf(folder), last, why)
  }
  const differs: readonly [why: string, change: () => Promise<unknown>][] = [
    ['a byte', () => writeFile(at('a'), 'onE')],
    ['an executable bit', () => chmod(at('a'), 0o755)],
    ['a name', () => rename(at('b'), at('d'))],
    ['an empty file', () => writeFile(at('e'), '')],
    ['an empty folder', () => mkdir(at('f'))],
    ['a link in place of nothing', () => symlink('a', at('g'))],
  ]
  for (const [why, change] of differs) {
    await change()
    const next = await hashOf(folder)
    t.not(next, last, why)
    last = next
  }
  t.not(await hashOf(folder, 'x'), last, 'a word of the recipe')
  t.not(
    await recipeHash([textEntry('ab', 'c')], []),
    await recipeHash([textEntry('a', 'bc')], []),
    'fields do not run into each other',
  )
})

t.test('a context is packed whole, with owner, time and modes of its own', async (t) => {
  const big = 'x'.repeat(3_000_000)
  const folder = t.testdir({ big, empty: '', sub: { link: t.fixture('symlink', '../big') } })
  await writeFile(join(folder, 'tool'), '#!/bin/sh', { mode: 0o700 })
  t.strictSame(
    await filesOf(packContext([...(await readContext(folder)), textEntry('more', 'text')])),
    new Map([
      ['big', `file 644 ${big}`],
      ['empty', 'file 644 '],
      ['sub', 'directory 755 '],
      ['sub/link', 'symlink 777 ../big'],
      ['tool', 'file 755 #!/bin/sh'],
      ['more', 'file 644 text'],
    ]),
  )
  const entries = await readContext(folder)
  await writeFile(join(folder, 'big'), 'shorter')
  await t.rejects(filesOf(packContext(entries)), 'a file that changed while it was packed')
  execFileSync('mkfifo', [join(folder, 'pipe')])
  await t.rejects(readContext(folder), {
    code: 'image_build_failed',
    blame: 'task',
    message: /pipe/,
  })
})

t.test('the recipes hold what their Dockerfiles copy, and no name of a registry', async (t) => {
  const recipes = await readRecipes()
  const folder = new URL('../../images/', import.meta.url)
  for (const name of ['harness', 'sglang-cpu', 'sglang-radix'] as const) {
    const text = await readFile(new URL(`${name}/Dockerfile`, folder), 'utf8')
    t.strictSame(outsideImages(text), ['${BASE}'], `${name} starts from the base alone`)
    const given = ['ca.pem', 'pip.conf', ...recipes[name].entries.map(({ path }) => path)]
    for (const [, sources = ''] of text.matchAll(/^COPY ((?!--from)[^\n]*) \S+$/gm))
      for (const source of sources.split(' ')) t.ok(given.includes(source), `${name}: ${source}`)
    const lock = await readFile(new URL(`${name}/requirements.lock`, folder), 'utf8')
    const { program, version, wheel } = digests[name]
    t.ok(lock.includes(`${program}==${version} \\\n    --hash=${wheel}\n`), `${name} pins itself`)
    const pins = lock.replace(/^#.*\n/gm, '')
    t.match(pins, /^(?:[a-z0-9-]+==\S+ \\\n {4}--hash=sha256:[0-9a-f]{64}\n)+$/, 'one hash each')
  }
})

t.test('images are built when their recipe changed, and only then', async (t) => {
  const recipes = await readRecipes()
  const engine = new ImageEngine()
  const stateDir = t.testdir()
  const seen: ImageProgress[] = []
  const options = {
    engine: engine.engine,
    stateDir,
    onProgress: (progress: ImageProgress) => void seen.push(progress),
  }
  const label = (name: keyof typeof recipes): Record<string, string> => ({
    [recipeLabel]: recipes[name].hash,
  })
  const base = engine.add(imageTags.base, label('base'))
  const old = engine.add(imageTags.harness, { [recipeLabel]: 'of another day' })
  engine.printed = [
    `Step 1/4 : FROM ${imageTags.base} AS build`,
    ' ---> aaaaaaaaaaaa',
    'Step 2/4 : RUN sh build.sh',
    ' ---> bbbbbbbbbbbb',
    'Step 3/4 : FROM base',
    ' ---> aaaaaaaaaaaa',
    'Step 4/4 : COPY x x',
    ' ---> cccccccccccc',
  ]
  const built = await buildImages(['base', 'harness', 'sglang-cpu'], options)
  t.equal(built.base.id, base.id, 'the base was there')
  t.equal(built.harness.id, engine.images.get(imageTags.harness)?.id)
  t.strictSame(
    engine.builds.map(({ tag }) => tag).toSorted(),
    [imageTags.harness, imageTags['sglang-cpu']],
    'what was old and what was missing',
  )
  t.strictSame(
    engine.removed.toSorted(),
    ['bbbbbbbbbbbb', 'bbbbbbbbbbbb', old.id].toSorted(),
    'the image that was replaced and the build stages go',
  )
  const harness = engine.builds.find(({ tag }) => tag === imageTags.harness)
  t.match(harness?.files.get('ca.pem'), /BEGIN CERTIFICATE/, 'the build stage trusts what we trust')
  t.match(harness?.files.get('pip.conf'), /\[global\]/)
  t.match(harness?.files.get('docker'), /^file 755 /, 'the shim can be executed')
  t.match(harness?.spec, { network: 'host', labels: label('harness') })

  const builds = engine.builds.length
  seen.length = 0
  t.same(await buildImages(['harness', 'sglang-cpu'], options), {
    harness: built.harness,
    'sglang-cpu': built['sglang-cpu'],
  })
  t.equal(engine.builds.length, builds, 'nothing is built twice')
  t.strictSame(
    seen.map(({ phase }) => phase),
    ['cached', 'cached'],
  )
})

t.test('two builders at once build each image once', async (t) => {
  const engine = new ImageEngine()
  engine.add(imageTags.base, { [recipeLabel]: (await readRecipes()).base.hash })
  const options = { engine: engine.engine, stateDir: t.testdir() }
  const [one, two] = await Promise.all([
    buildImages(['harness'], options),
    buildImages(['harness'], options),
  ])
  t.equal(engine.builds.length, 1)
  t.equal(one.harness.id, two.harness.id)
})

t.test(
  'a context that breaks while it is sent ends the build instead of leaving it to wait',
  async (t) => {
    const source = new PassThrough()
    const given = Promise.withResolvers<AbortSignal>()
    const fed = feed(source, undefined, (signal) => {
      given.resolve(signal)
      return new Promise(() => {})
    })
    source.destroy(new Error('a file changed'))
    await t.rejects(fed, { message: 'a file changed' })
    t.equal((await given.promise).aborted, true)
    t.equal(await feed(new PassThrough(), undefined, async () => 'taken'), 'taken')
  },
)

t.test('another processor is refused before anything is built', async (t) => {
  const engine = new ImageEngine()
  engine.architecture = 'aarch64'
  await t.rejects(buildImages(['harness'], { engine: engine.engine, stateDir: t.testdir() }), {
    code: 'image_build_failed',
    message: /linux\/amd64.*aarch64/,
  })
  t.equal(engine.builds.length, 0)
})

t.test('a task’s image follows its context and the images that it starts from', async (t) => {
  const engine = new ImageEngine()
  engine.add(imageTags.base, { [recipeLabel]: (await readRecipes()).base.hash })
  const digest = `registry.example/some/image@sha256:${'0'.repeat(64)}`
  const folder = t.testdir({
    environment: {
      Dockerfile: `FROM ${imageTags.base} AS one\nFROM ${digest}\nCOPY --from=one /a /a\nCOPY data /\n`,
      data: 'x',
    },
  })
  const environment = join(folder, 'environment')
  const options = { engine: engine.engine, stateDir: join(folder, 'state') }
  const first = await buildTaskImage(environment, options)
  t.strictSame(engine.pulled, [digest], 'a pinned image is fetched where it is missing')
  t.match(first, { id: engine.images.get(first.tag)?.id, tag: /^closedbook\/task:[0-9a-f]{20}$/ })
  t.strictSame([...(engine.builds[0]?.files.keys() ?? [])], ['Dockerfile', 'data'])

  t.same(await buildTaskImage(environment, options), first, 'the same again')
  t.equal(engine.builds.length, 1)
  await writeFile(join(environment, 'data'), 'y')
  const second = await buildTaskImage(environment, options)
  t.not(second.id, first.id, 'the context changed')
  engine.add(digest)
  t.not((await buildTaskImage(environment, options)).id, second.id, 'an image under it changed')
  t.equal(engine.builds.length, 3)
})

t.test('a task’s image that can’t be believed is refused with the line to change', async (t) => {
  const engine = new ImageEngine()
  const table: readonly [
    environment: Record<string, string>,
    error: { code: string; message: RegExp; blame?: string },
    why: string,
  ][] = [
    [
      {},
      { code: 'image_build_failed', blame: 'task', message: /Dockerfile can't be read/ },
      'none',
    ],
    [
      { Dockerfile: 'RUN true\n' },
      { code: 'image_build_failed', message: /Dockerfile has no FROM/ },
      'no start',
    ],
    [
      { Dockerfile: 'FROM python:3.13\n' },
      { code: 'image_not_pinned', blame: 'task', message: /python:3\.13 is not pinned.*sha256/ },
      'a tag moves',
    ],
    [
      { Dockerfile: `FROM scratch\nCOPY --from=busybox:1 /bin /bin\n` },
      { code: 'image_not_pinned', message: /busybox:1/ },
      'a tag that is copied from moves too',
    ],
    [
      { Dockerfile: 'ARG IMAGE\nFROM ${IMAGE}\n' },
      { code: 'image_not_pinned', message: /\$\{IMAGE\}/ },
      'an argument that nobody gives',
    ],
  ]
  for (const [environment, error, why] of table) {
    const folder = t.testdir({ environment })
    const options = { engine: engine.engine, stateDir: folder }
    await t.rejects(buildTaskImage(join(folder, 'environment'), options), error, why)
  }
  t.strictSame([engine.builds.length, engine.pulled.length], [0, 0])
})

t.test('the images that a Dockerfile names are found in every spelling', async (t) => {
  const table: readonly [text: string, images: readonly string[], why: string][] = [
    ['FROM a\nFROM a AS b\nFROM b', ['a'], 'once each, stages left out'],
    ['FROM a As Build\nFROM build', ['a'], 'stage names in any case'],
    ['from --platform=linux/amd64 a', ['a'], 'a flag before the image'],
    ['FROM a\nCOPY --from=0 /x /\nCOPY --chown=1 --from=z /x /', ['a', 'z'], 'stages by number'],
    ['FROM \\\n  a \\\n  AS b\n# FROM c\nFROM b', ['a'], 'lines that go on, comments'],
    ['ARG V=1\nARG N="x"\nFROM ${N}:$V\nFROM ${M:-m}', ['x:1', 'm'], 'defaults of arguments'],
    ['FROM a\nRUN --mount=type=bind,from=q,target=/q true', ['a', 'q'], 'a mount'],
    ['FROM scratch', [], 'no image at all'],
  ]
  for (const [text, images, why] of table) t.strictSame(outsideImages(text), images, why)
})

t.test('package clients get this machine’s settings from files and environment', async (t) => {
  const folder = t.testdir({
    one: '[global]\nindex-url = https://one.example/simple\ncert = /x\n[list]\ntimeout = 1\n',
    two: '[install]\nextra-index-url =\n    https://a.example/simple\n    https://b.example/simple\n',
    pem: 'PEM\n',
  })
  const files = [join(folder, 'one'), join(folder, 'two'), join(folder, 'none')]
  t.equal(
    pipConfig(
      { PIP_INDEX_URL: 'https://env.example/simple', PIP_CERT: '/y', PIP_RETRIES: '' },
      files,
    ),
    [
      '[global]',
      'disable-pip-version-check = true',
      'index-url = https://env.example/simple',
      'extra-index-url = https://a.example/simple',
      '    https://b.example/simple',
      '',
    ].join('\n'),
    'the environment wins; paths of this machine stay here',
  )
  t.equal(caBundle({ SSL_CERT_FILE: join(folder, 'pem'), PIP_CERT: join(folder, 'none') }), 'PEM\n')
  t.match(caBundle({}), /BEGIN CERTIFICATE/)
  t.strictSame(proxyArguments({ HTTPS_PROXY: 'http://127.0.0.1:1', no_proxy: '', HOME: '/' }), {
    HTTPS_PROXY: 'http://127.0.0.1:1',
  })
})

t.test('tools of the sandbox are static programs or an error that says what to do', async (t) => {
  const folder = t.testdir({ tools: { catatonit: '#!/bin/sh\n' } })
  const tools = join(folder, 'tools')
  t.equal(await isStaticElf(join(tools, 'catatonit')), false, 'a script is none')
  t.equal(await isStaticElf(process.execPath), false, 'a program with an interpreter is none')
  t.equal(await isStaticElf(tools), false, 'a folder is none')
  const fake = Buffer.alloc(64 + 56)
  fake.write('\x7fELF\x02\x01', 'latin1')
  fake.writeBigUInt64LE(64n, 32)
  fake.writeUInt16LE(56, 54)
  fake.writeUInt16LE(1, 56)
  fake.writeUInt32LE(1, 64)
  await writeFile(join(tools, 'busybox'), fake)
  t.equal(await isStaticElf(join(tools, 'busybox')), true, 'one loadable segment, no interpreter')
  await copyFile(join(tools, 'busybox'), join(tools, 'catatonit'))
  t.strictSame(await ensureTools(folder, { places: [] }), {
    initPath: join(tools, 'catatonit'),
    busyboxPath: join(tools, 'busybox'),
  })
  await writeFile(join(tools, 'catatonit'), fake.subarray(0, 80))
  const path = process.env['PATH']
  t.teardown(() => (process.env['PATH'] = path))
  process.env['PATH'] = folder
  await t.rejects(ensureTools(folder, { places: [] }), {
    code: 'tool_missing',
    blame: 'operator',
    message: /apt-get install catatonit/,
  })
})
