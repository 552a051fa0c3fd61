/** What is packed for another host is, once unpacked there, what was planned: to the byte, however odd its names. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import {
  chmod,
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import t from 'tap'
import { packageVersion } from '../../../daemon/protocol/version.ts'
import { asPlanned, readNamed } from '../../../runner/job/load-job.ts'
import { sealWith } from '../../../runner/job/host-values.ts'
import { packJob, type Pack } from '../../../runner/job/pack.ts'
import { makePlan, plainHarnessDigest } from '../../../runner/job/plan.ts'
import type { Sources } from '../../../runner/job/sources.ts'
import type { Store } from '../../../runner/store/store.ts'
import { loadTask } from '../../../runner/task/load.ts'
import { failureOf } from '../support/scratch.ts'
import { thisProcess } from '../../../runner/store/process.ts'
import { otherProcess } from '../store/setup.ts'
import { removeUnpacked, sweepUnpacked, unpackSources } from '../../../runner/worker/unpack.ts'

const folder = await mkdtemp(path.join(os.tmpdir(), 'closedbook pack-'))
t.teardown(() => rm(folder, { recursive: true, force: true }))
const fixtures = path.resolve('test/fixtures')
const image = `sha256:${'1'.repeat(64)}`

async function write(file: string, text: string, mode = 0o644): Promise<string> {
  await mkdir(path.dirname(file), { recursive: true })
  await writeFile(file, text)
  await chmod(file, mode)
  return file
}

/** Harbor's, named by its directory alone. */
async function harborTask(dir: string, marker: string): Promise<string> {
  await cp(path.join(fixtures, 'harbor/rewards'), dir, { recursive: true })
  await write(
    path.join(dir, 'task.toml'),
    `schema_version = "1.3"\n[environment]\ndocker_image = "closedbook/base:trixie"\nworkdir = "/data"\nallow_internet = true\n[environment.env]\nTOKEN = "\${PACK_TEST_TOKEN}"\n# ${marker}\n`,
  )
  return dir
}

async function oddTask(dir: string): Promise<string> {
  await cp(path.join(fixtures, 'tasks/tally'), dir, { recursive: true })
  const odd = path.join(dir, 'environment/src')
  await write(path.join(odd, '-rf'), 'leading dash')
  await write(path.join(odd, 'a b/é\u0301😀 \\n\n"x".txt'), 'odd')
  await write(path.join(odd, 'closedbook/deeper.txt'), 'stays')
  await write(path.join(odd, `${'long'.repeat(60)}.txt`), 'long')
  await write(path.join(odd, `${'deep/'.repeat(60)}x`), 'deep')
  await write(path.join(odd, 'group.sh'), '#!/bin/sh\n', 0o654)
  await write(path.join(odd, 'own.sh'), '#!/bin/sh\n', 0o700)
  await write(path.join(odd, 'locked.txt'), 'read only', 0o444)
  await write(path.join(odd, 'empty.txt'), '')
  await mkdir(path.join(odd, 'nothing here'))
  await symlink('own.sh', path.join(odd, 'link.sh'))
  await symlink('../src/a b', path.join(odd, 'link to a directory'))
  await write(path.join(dir, 'closedbook/qualification.json'), '{}')
  return dir
}

async function configurations(dir: string): Promise<string[]> {
  await write(
    path.join(dir, 'prices.yaml'),
    'version: 1\nasOf: 2025-11-29\nsource: https://provider.example/prices\nmodels:\n  m: {inputPerMillionUsd: 3, cachedInputPerMillionUsd: 0.3, outputPerMillionUsd: 15}\n',
  )
  await write(path.join(dir, 'mounted real/bin/run me'), '#!/bin/sh\n', 0o755)
  await write(path.join(dir, 'mounted real/closedbook/x'), 'x', 0o611)
  await mkdir(path.join(dir, 'mounted real/empty'))
  await symlink('bin/run me', path.join(dir, 'mounted real/link'))
  await symlink('mounted real', path.join(dir, 'mounted'))
  const commandFile = `name: own\nargv: ["{{harness_dir}}/bin/run me"]\nenv: {A: "é {{model}}"}\nfiles: {x.sh: "#!/bin/sh\\n"}\n`
  await write(path.join(dir, 'command file.yaml'), `${commandFile}directory: mounted real\n`)
  await write(path.join(dir, 'linked.yaml'), `${commandFile}directory: mounted\n`)
  await write(path.join(dir, 'a:b.sh'), '#!/bin/bash\ntrue\n', 0o755)
  await write(path.join(dir, 'policy.yaml'), 'version: 1\nconnect:\n  allow: [example.org]\n')
  await write(path.join(dir, 'rec/rewards/1.jsonl'), '{}\n')
  for (const name of ['tally', 'one', 'two'])
    await write(path.join(dir, `rec/${name}/1.jsonl`), '{}\n')
  const model = `{name: m, prices: prices.yaml, upstream: {kind: replay, recordings: rec}, parameters: {temperature: 0.5}}`
  return [
    await write(
      path.join(dir, 'plain.yaml'),
      `harness: "script:a:b.sh"\npass: {reward: ">=0.5"}\nresources: {memoryBytes: 536870912}\n`,
    ),
    await write(
      path.join(dir, 'closedbook.yaml'),
      `harness: "command:command file.yaml"\nmodel: ${model}\nlimits: {steps: 3}\n`,
    ),
    await write(
      path.join(dir, 'linked-dir.yaml'),
      `harness: "command:linked.yaml"\nmodel: ${model}\n`,
    ),
    await write(path.join(dir, 'policed.yaml'), `harness: noop\npolicy: policy.yaml\n`),
  ]
}

void t.test('a job is on another host what it was where it was planned', async (t) => {
  const sources: Sources = {
    schema: 'closedbook.sources/1',
    taskDirs: [
      await oddTask(path.join(folder, 'odd task')),
      await harborTask(path.join(folder, 'x/one'), 'same'),
      await harborTask(path.join(folder, 'x/two'), 'same'),
    ],
    configurations: (await configurations(path.join(folder, 'configurations é'))).map((file) => ({
      kind: 'file' as const,
      path: file,
      harness: null,
    })),
    concurrency: 1,
    harbor: { network: 'closed-book', hostEnv: ['PACK_TEST_TOKEN'] },
  }
  process.env['PACK_TEST_TOKEN'] = 'hunter2'
  t.teardown(() => delete process.env['PACK_TEST_TOKEN'])
  const named = await readNamed(sources, 1)
  const plan = makePlan({
    name: 'odd',
    runs: 1,
    closedbookVersion: packageVersion,
    now: new Date(),
    seal: sealWith('key'),
    tasks: named.tasks.map((task) => ({ task, image, verifierImage: null })),
    configurations: named.configurations.map((configuration) => ({
      configuration,
      harnessDigest: plainHarnessDigest(configuration, packageVersion),
    })),
  })
  const said: string[] = []
  const packs = await packJob({ ...named, runs: 1 }, (what) => said.push(what))
  t.same(said, [])
  const all = [...packs.tasks, packs.configurations].filter((one): one is Pack => one !== null)
  const digest = (bytes: Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`
  t.ok(all.every((one) => one.digest === digest(one.bytes)))
  const store = {
    database: {
      rows: async (_sql: string, [name]: string[]) => all.filter((one) => one.digest === name),
    },
  } as unknown as Store
  const names = {
    tasks: packs.tasks.map((one) => one?.digest ?? null),
    configurations: packs.configurations?.digest ?? null,
  }
  const here = await unpackSources(
    store,
    { plan, sources, packs: names },
    path.join(folder, 'state'),
  )
  const again = await readNamed(
    here,
    1,
    plan.tasks.map(({ name }) => name),
  )
  t.same(
    again.tasks.map((one) => [one.name, one.digest, one.testsDigest]),
    named.tasks.map((one) => [one.name, one.digest, one.testsDigest]),
  )
  t.same(
    again.configurations.map((one) => [one.name, one.digest]),
    named.configurations.map((one) => [one.name, one.digest]),
  )
  t.equal(asPlanned(plan, again, 'key').tasks.length, 3)
  const planned = plan.tasks.map(({ hostEnv }) => hostEnv?.['PACK_TEST_TOKEN'])
  t.match(planned, [undefined, /^scrypt:[0-9a-f]{64}$/, planned[1]])
  t.not(sealWith('other')('PACK_TEST_TOKEN', 'hunter2'), planned[1], 'each job has its own key')
  t.notMatch(JSON.stringify([plan, packs]), /hunter2/)
  const taskNames = plan.tasks.map(({ name }) => name)
  for (const [value, says] of [
    ['hunter3', /PACK_TEST_TOKEN, which task one takes from the host, has another value here/],
    [undefined, /the variable PACK_TEST_TOKEN is not set on this host/],
  ] as const) {
    if (value === undefined) delete process.env['PACK_TEST_TOKEN']
    else process.env['PACK_TEST_TOKEN'] = value
    const error = await failureOf(async () =>
      asPlanned(plan, await readNamed(here, 1, taskNames), 'key'),
    )
    t.match(error, { blame: 'operator', message: says })
    t.notMatch(error.message, /hunter/)
  }
  const mounted = path.dirname(
    here.configurations.flatMap((one) => ('path' in one ? one.path : []))[0] ?? '',
  )
  t.equal(
    await readFile(path.join(mounted, 'linked-dir.d/mounted/link'), 'utf8'),
    '#!/bin/sh\n',
    'a directory that is named by a link is carried, not the link',
  )
})

void t.test('what dead workers unpacked goes when the next one starts', async (t) => {
  const stateDir = path.join(folder, 'swept')
  const packs = path.join(stateDir, 'packs')
  const { pid, startTime, boot, host } = await thisProcess()
  const named = (...parts: string[]) => parts.map(encodeURIComponent).join('~')
  const keep = {
    own: named(String(pid), startTime, boot, host),
    'of another host': named('1', '1', 'other boot', 'elsewhere'),
    'of another view of processes': named('1', '1', `${boot}x`, host),
    'of nobody that is known': 'sha256-0123',
  }
  const go = {
    'a pid that somebody else has now': named(String(pid), '1', boot, host),
    'before a reboot': named(String(pid), startTime, 'boot-before view', host),
  }
  for (const name of [...Object.values(keep), ...Object.values(go)])
    await write(path.join(packs, name, 'sha256-1.half/task.toml'), '')
  const child = await otherProcess(
    `import { thisProcess } from '${path.resolve('runner/store/process.ts')}'
     import { mkdirSync } from 'node:fs'
     const { pid, startTime, boot, host } = await thisProcess()
     mkdirSync('${packs}/' + [pid, startTime, boot, host].map(encodeURIComponent).join('~') + '/x', { recursive: true })
     console.log('there'); setInterval(() => {}, 1e6)`,
  )
  t.equal(await sweepUnpacked(stateDir), 2)
  const left = await readdir(packs)
  t.same(
    left.filter((name) => !name.startsWith(`${child.pid}~`)).toSorted(),
    Object.values(keep).toSorted(),
  )
  t.equal(left.length, 5, 'another worker that lives keeps its own')
  child.kill('SIGKILL')
  await once(child, 'close')
  t.equal(await sweepUnpacked(stateDir), 1, 'and loses it when it was killed')
  await removeUnpacked(stateDir)
  t.equal((await readdir(packs)).length, 3)
  t.equal(await sweepUnpacked(path.join(folder, 'nothing')), 0)
})

void t.test('a task that is too big is not carried, nor read', async (t) => {
  const dir = await oddTask(path.join(folder, 'big'))
  const evidence = await write(path.join(dir, 'closedbook/page.html'), '')
  await truncate(evidence, 5e9)
  const packed = async () => {
    const said: string[] = []
    const task = await loadTask(dir)
    const packs = await packJob({ tasks: [task], configurations: [], runs: 1 }, (what) =>
      said.push(what),
    )
    return { carried: packs.tasks.map((one) => one !== null), said }
  }
  t.same(await packed(), { carried: [true], said: [] }, 'what was found out about it is left out')
  const data = await write(path.join(dir, 'environment/data.bin'), '')
  await truncate(data, 300e6)
  t.match(await packed(), { carried: [false], said: [/too big to carry/] })
})
