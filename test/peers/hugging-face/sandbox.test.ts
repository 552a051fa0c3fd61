/** The gateway as a task's sandbox has it: the listener in its namespace, the proof, the runner's variables, a real client. */
import { appendFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t from 'tap'
import { huggingFaceEnvironment } from '../../../runner/trial/hugging-face.ts'
import { policySchema } from '../../../policy/policy.ts'
import { writeTrivialTask } from '../../bench/trivial-task.ts'
import { eventLine, SandboxWorld } from '../../e2e/sandbox/setup.ts'
import { readRun } from '../../e2e/trials/setup.ts'
import { bundleOf } from '../../support/bundle.ts'
import { large, StandInHub } from '../../support/hub.ts'
import { installed } from './clients.ts'
import { tinyModel } from './tiny-model.ts'

const token = 'hf_daemonsOwnSecret0123456789'

const download = `
import json, os, subprocess, sys
from huggingface_hub import snapshot_download, hf_hub_download
out = {"files": sorted(os.listdir(snapshot_download("acme/tiny")))}
for what, call in {"py": lambda: hf_hub_download("acme/tiny", "modeling_tiny.py"), "other": lambda: snapshot_download("acme/other")}.items():
    try:
        call()
        out[what] = "it worked"
    except Exception as error:
        out[what] = str(error) + str(error.__cause__)
out["big"] = os.path.getsize(hf_hub_download("acme/tiny", "big.safetensors"))
env = {**os.environ}
out["env"] = [name for name, value in env.items() if "${token}" in value]
print(json.dumps(out))
`

t.test(
  'a sandbox has the gateway where its policy pins artifacts, proven, and nothing else of the Hub',
  async (t) => {
    await using undo = new AsyncDisposableStack()
    const scratch = await mkdtemp(path.join(tmpdir(), 'hub-sandbox-'))
    undo.defer(() => rm(scratch, { recursive: true, force: true }))
    const tokenFile = path.join(scratch, 'token')
    await writeFile(tokenFile, `${token}\n`, { mode: 0o600 })
    const standIn = undo.use(await StandInHub.open())
    const commit = standIn.add('acme/tiny', {
      ...tinyModel(),
      'big.safetensors': large(20_000_000),
    })
    standIn.add('acme/other', tinyModel())
    const world = undo.use(
      await SandboxWorld.open({
        huggingface: { endpoint: standIn.endpoint, tokenFile, fileHosts: [standIn.fileHost] },
      }),
    )
    const policy = policySchema.parse({
      version: 1,
      huggingface: { repos: [{ repo: 'acme/tiny', revision: commit }] },
    })
    const bundle = await bundleOf(await installed('hub-2.4.0'), world.daemon.client, ['hf_xet*'])
    const mounts = [{ bundle, target: '/opt/hub' }]
    const env = { ...huggingFaceEnvironment(policy), PYTHONPATH: '/opt/hub', HOME: '/tmp' }
    const lease = await world.lease({ policy, env, mounts })
    const { proof } = await world.daemon.client.lease(lease)
    t.match(
      proof.before.find(({ canary }) => canary === 'artifact-head'),
      { ok: true, audited: true, seen: '200' },
      'an allowed artifact is part of the proof',
    )

    const seen = (await world.python(lease, download)) as Record<string, unknown>
    const names = Object.keys(tinyModel()).filter((name) => !/\.py$|\//.test(name))
    t.same(seen['files'], [...names, 'big.safetensors', 'sub'].toSorted())
    t.match(seen['py'], /closedbook: file_not_allowed/)
    t.match(seen['other'], /closedbook: repo_not_allowed/)
    t.equal(seen['big'], 20_000_000)
    t.same(seen['env'], [], 'the token is not in it')
    const events = await world.audit(lease)
    const lines = events.filter(({ protocol }) => protocol === 'hf').map(eventLine)
    t.ok(
      lines.some((line) =>
        /^decision hf 127\.0\.0\.1 - \d+ allow allowed_artifact x1 GET .*big\.safetensors/.test(
          line,
        ),
      ),
    )
    t.ok(lines.some((line) => /deny file_not_allowed .*modeling_tiny\.py/.test(line)))
    t.ok(
      events.some(
        ({ kind, protocol, bytesDown }) =>
          kind === 'close' && protocol === 'hf' && bytesDown === 20_000_000,
      ),
    )
    t.notMatch(JSON.stringify(events), token)

    const plain = await world.lease()
    const closed = await world.run(plain, [
      'curl',
      '-sS',
      '-m',
      '5',
      'http://127.0.0.1:8401/acme/tiny/resolve/main/config.json',
    ])
    t.match(closed.output, /Failed to connect|refused/, 'without a pin nothing listens')

    // The daemon dies: the lease is served again, from the disk, at the same commit.
    standIn.repos.delete('acme/tiny')
    await world.daemon.kill()
    await world.daemon.start()
    const again = await world.run(lease, [
      'curl',
      '-fsS',
      '-o',
      '/dev/null',
      '-w',
      '%{http_code} %{size_download}',
      'http://127.0.0.1:8401/acme/tiny/resolve/main/big.safetensors',
    ])
    t.equal(again.output, '200 20000000')

    const frozen = await world.daemon.client.freeze(lease)
    t.equal(frozen.empty, true)
    const log = await readFile(path.join(world.daemon.stateDir, 'daemon.log'), 'utf8').catch(
      () => '',
    )
    t.notMatch(log, token)
  },
)

t.test('a lease whose artifacts can not be had is refused before any work', async (t) => {
  await using standIn = await StandInHub.open()
  standIn.add('acme/tiny', tinyModel())
  await using world = await SandboxWorld.open({ huggingface: { endpoint: standIn.endpoint } })
  const lease = (repo: object) =>
    world.lease({
      policy: {
        version: 1,
        huggingface: { repos: [{ repo: 'acme/tiny', revision: 'main', ...repo }] },
      },
    })
  await t.rejects(lease({ repo: 'acme/none' }), {
    code: 'lease_refused',
    blame: 'operator',
    message: /RepoNotFound/,
  })
  await t.rejects(lease({ files: ['*.gguf'] }), {
    code: 'lease_refused',
    message: /no file that the policy names/,
  })
  t.equal(await world.containers(), 0)
})

t.test(
  'a task that pins artifacts finds them in its trial, by the variables that libraries read',
  async (t) => {
    await using undo = new AsyncDisposableStack()
    const scratch = await mkdtemp(path.join(tmpdir(), 'hub-trial-'))
    undo.defer(() => rm(scratch, { recursive: true, force: true }))
    const standIn = undo.use(await StandInHub.open())
    const commit = standIn.add('acme/tiny', tinyModel())
    const world = undo.use(
      await SandboxWorld.open({
        huggingface: { endpoint: standIn.endpoint, fileHosts: [standIn.fileHost] },
      }),
    )
    const task = await writeTrivialTask(path.join(scratch, 'task'))
    // Its hidden tests read the artifact as well; offline they could not.
    const toml = path.join(task, 'task.toml')
    const exists = 'sh /tests/exists.sh answer.txt {results}'
    const reading = `curl -fsS -o /dev/null $HF_ENDPOINT/acme/tiny/resolve/main/config.json && ${exists}`
    const text = (await readFile(toml, 'utf8'))
      .replace('area =', 'verifier_artifacts = true\narea =')
      .replace(exists, reading)
    await writeFile(toml, text)
    await appendFile(
      toml,
      `[[closedbook.huggingface]]\nrepo = "acme/tiny"\nrevision = "${commit}"\nfiles = ["config.json"]\n`,
    )
    const script = path.join(scratch, 'agent.sh')
    await writeFile(
      script,
      `curl -fsS $HF_ENDPOINT/acme/tiny/resolve/main/config.json > answer.txt || exit 9
curl -sS $HF_ENDPOINT/acme/tiny/resolve/main/model.safetensors
echo $HF_HUB_DISABLE_XET $HF_HUB_DOWNLOAD_TIMEOUT $NO_PROXY
`,
    )
    const cli = await world.daemon.cli([
      'run',
      '--task',
      task,
      '--harness',
      `script:${script}`,
      '--json',
    ])
    const { results, line } = await readRun(world.daemon, cli)
    const [result] = results
    t.match(result, {
      verdict: 'passed',
      egress: { byReason: { allowed_artifact: 1, file_not_allowed: 1 } },
    })
    t.match(
      result?.proof.before.find(({ canary }) => canary === 'artifact-head'),
      { audited: true },
      'the proof is part of the result',
    )
    const events = await Array.fromAsync(world.daemon.client.audit(line.trials[0]?.trial ?? ''))
    t.ok(
      events.some(
        ({ reason, detail = '' }) =>
          reason === 'file_not_allowed' && detail.includes('model.safetensors'),
      ),
    )
  },
)
