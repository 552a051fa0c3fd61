/**
 * Whether weights come through the Hugging Face gateway as a model needs them: a tiny Llama of two shards in a stand-in
 * Hub, loaded from inside a sealed sandbox by `safetensors.torch` and by `transformers`, and its logits against those
 * computed here. No bar but being right; of the image of 2 GB with torch, so it is run by hand. `--packages DIR` takes
 * transformers from there, installed by: pip install --target DIR --python-version 3.13 --only-binary=:all:
 * transformers==5.24.0 safetensors
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { huggingFaceEnvironment } from '../../runner/trial/hugging-face.ts'
import { policySchema } from '../../policy/policy.ts'
import { TestDaemon } from '../support/daemon.ts'
import { bytes, StandInHub, type Content } from '../support/hub.ts'
import { bench, benchEngine, root } from './support.ts'

const size = { vocab: 16, hidden: 8, inner: 12 }
const prompt = 5

type Tensors = Readonly<Record<string, { readonly shape: number[]; readonly data: Float32Array }>>

let drawn = 0
const tensor = (...shape: number[]) => ({
  shape,
  data: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => {
    drawn += 1
    return ((drawn * 37) % 101) / 50 - 1
  }),
})
const layer = 'model.layers.0'
const shards: readonly Tensors[] = [
  {
    'model.embed_tokens.weight': tensor(size.vocab, size.hidden),
    [`${layer}.self_attn.q_proj.weight`]: tensor(size.hidden, size.hidden),
    [`${layer}.self_attn.k_proj.weight`]: tensor(size.hidden, size.hidden),
    [`${layer}.self_attn.v_proj.weight`]: tensor(size.hidden, size.hidden),
    [`${layer}.self_attn.o_proj.weight`]: tensor(size.hidden, size.hidden),
  },
  {
    [`${layer}.mlp.gate_proj.weight`]: tensor(size.inner, size.hidden),
    [`${layer}.mlp.up_proj.weight`]: tensor(size.inner, size.hidden),
    [`${layer}.mlp.down_proj.weight`]: tensor(size.hidden, size.inner),
    [`${layer}.input_layernorm.weight`]: tensor(size.hidden),
    [`${layer}.post_attention_layernorm.weight`]: tensor(size.hidden),
    'model.norm.weight': tensor(size.hidden),
    'lm_head.weight': tensor(size.vocab, size.hidden),
  },
]
const weights: Tensors = { ...shards[0], ...shards[1] }
const of = (name: string): Float32Array => weights[name]?.data ?? new Float32Array()

function safetensors(tensors: Tensors): Buffer {
  const parts: Buffer[] = []
  let at = 0
  const header = Object.fromEntries(
    Object.entries(tensors).map(([name, { shape, data }]) => {
      parts.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength))
      const from = at
      at += data.byteLength
      return [name, { dtype: 'F32', shape, data_offsets: [from, at] }]
    }),
  )
  const head = Buffer.from(JSON.stringify({ __metadata__: { format: 'pt' }, ...header }))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(head.length))
  return Buffer.concat([length, head, ...parts])
}

const shardName = (n: number): string => `model-0000${n + 1}-of-00002.safetensors`
const files = (): Record<string, Content | string> => ({
  'config.json': JSON.stringify({
    ...{ model_type: 'llama', architectures: ['LlamaForCausalLM'], torch_dtype: 'float32' },
    ...{ hidden_size: size.hidden, intermediate_size: size.inner, vocab_size: size.vocab },
    ...{ num_hidden_layers: 1, num_attention_heads: 1, num_key_value_heads: 1 },
    ...{ rms_norm_eps: 1e-6, tie_word_embeddings: false, bos_token_id: 1, eos_token_id: 2 },
  }),
  'model.safetensors.index.json': JSON.stringify({
    metadata: { total_size: shards.reduce((sum, one) => sum + safetensors(one).length, 0) },
    weight_map: Object.fromEntries(
      shards.flatMap((one, n) => Object.keys(one).map((name) => [name, shardName(n)])),
    ),
  }),
  ...Object.fromEntries(shards.map((one, n) => [shardName(n), bytes(safetensors(one))])),
  'pytorch_model.bin': bytes(Buffer.alloc(64)),
})

/** A forward pass of one token: attention over itself is its own value. */
function expectedLogits(token: number): number[] {
  const times = (name: string, x: readonly number[]): number[] => {
    const matrix = of(name)
    return Array.from({ length: matrix.length / x.length }, (_row, row) =>
      x.reduce((sum, value, column) => sum + (matrix[row * x.length + column] ?? 0) * value, 0),
    )
  }
  const norm = (name: string, x: readonly number[]): number[] => {
    const scale = 1 / Math.sqrt(x.reduce((sum, value) => sum + value ** 2, 0) / x.length + 1e-6)
    return x.map((value, at) => value * scale * (of(name)[at] ?? 0))
  }
  const plus = (a: readonly number[], b: readonly number[]) => a.map((x, at) => x + (b[at] ?? 0))
  const from = token * size.hidden
  let x = [...of('model.embed_tokens.weight').subarray(from, from + size.hidden)]
  const value = times(
    `${layer}.self_attn.v_proj.weight`,
    norm(`${layer}.input_layernorm.weight`, x),
  )
  x = plus(x, times(`${layer}.self_attn.o_proj.weight`, value))
  const seen = norm(`${layer}.post_attention_layernorm.weight`, x)
  const gate = times(`${layer}.mlp.gate_proj.weight`, seen).map((g) => g / (1 + Math.exp(-g)))
  const up = times(`${layer}.mlp.up_proj.weight`, seen)
  const inner = gate.map((g, at) => g * (up[at] ?? 0))
  x = plus(x, times(`${layer}.mlp.down_proj.weight`, inner))
  return times('lm_head.weight', norm('model.norm.weight', x))
}

const program = `
import json, os, sys, time
import torch
from huggingface_hub import hf_hub_download
from safetensors.torch import load_file
said = {"torch": torch.__version__, "endpoint": os.environ["HF_ENDPOINT"]}
first = load_file(hf_hub_download("acme/llama", "${shardName(0)}"))
embed = first["model.embed_tokens.weight"]
said["tensors"] = {name: list(one.shape) for name, one in first.items()}
said["matmul"] = (embed @ torch.ones(embed.shape[1])).tolist()
try:
    hf_hub_download("acme/llama", "pytorch_model.bin")
    said["unpinned"] = "it came"
except Exception as error:
    said["unpinned"] = str(error) + str(error.__cause__)
started = time.time()
import transformers
from transformers import AutoModelForCausalLM
said["transformers"] = transformers.__version__
model = AutoModelForCausalLM.from_pretrained("acme/llama").eval()
said["parameters"] = sum(one.numel() for one in model.parameters())
with torch.no_grad():
    said["logits"] = model(torch.tensor([[${prompt}]])).logits[0, -1].tolist()
said["seconds"] = round(time.time() - started, 1)
print(json.dumps(said))
`

interface Said {
  readonly torch: string
  readonly transformers: string
  readonly endpoint: string
  readonly tensors: Readonly<Record<string, number[]>>
  readonly matmul: number[]
  readonly unpinned: string
  readonly parameters: number
  readonly logits: number[]
  readonly seconds: number
}

const furthest = (seen: readonly number[], wanted: readonly number[]): number =>
  seen.length === wanted.length
    ? Math.max(...seen.map((value, at) => Math.abs(value - (wanted[at] ?? 0))))
    : Number.POSITIVE_INFINITY

await bench('weights', async (report) => {
  const at = process.argv.indexOf('--packages')
  const packages =
    at >= 0 ? (process.argv[at + 1] ?? '') : path.join(root, '.closedbook/peers/transformers-3.13')
  if (!existsSync(packages))
    throw new Error(`no packages in ${packages}; the head of this file says how they are installed`)
  await using undo = new AsyncDisposableStack()
  const engine = undo.use(await benchEngine(['sglang-radix']))
  const hub = undo.use(await StandInHub.open())
  const commit = hub.add('acme/llama', files())
  const huggingface = { endpoint: hub.endpoint, fileHosts: [hub.fileHost] }
  const daemon = undo.use(await TestDaemon.open(engine.socketPath, { huggingface }))
  const pinned = ['*.json', '*.safetensors']
  const policy = policySchema.parse({
    version: 1,
    huggingface: { repos: [{ repo: 'acme/llama', revision: commit, files: pinned }] },
  })
  const tar = ['-C', packages, '--exclude=__pycache__', '--exclude=hf_xet*', '-c', '.']
  const { stdout } = await promisify(execFile)('tar', tar, {
    encoding: 'buffer',
    maxBuffer: 1024 ** 3,
  })
  const { lease } = await daemon.client.openLease({
    image: engine.images['sglang-radix'],
    policy,
    mounts: [{ bundle: await daemon.client.putBundle(stdout), target: '/opt/hub' }],
    env: {
      ...huggingFaceEnvironment(policy),
      ...{ PYTHONPATH: '/opt/hub', HOME: '/tmp', PYTHONDONTWRITEBYTECODE: '1' },
    },
    resources: { memoryBytes: 4 * 1024 ** 3 },
  })
  const output: Buffer[] = []
  const end = await daemon.client.exec(
    lease,
    { argv: ['python3', '-c', program], merged: true },
    { onStdout: (_offset, part) => void output.push(Buffer.from(part)) },
  )
  const text = Buffer.concat(output).toString()
  if (JSON.stringify(end.exit) !== '{"code":0}') throw new Error(text)
  const said = JSON.parse(text.trim().split('\n').at(-1) ?? '') as Said
  report.figure(
    'inside',
    `torch ${said.torch}, transformers ${said.transformers}, ${said.endpoint}`,
  )
  for (const [name, shape] of Object.entries(said.tensors))
    report.figure(`loaded ${name}`, shape.join(' x '))
  const rows = Array.from({ length: size.vocab }, (_row, row) =>
    of('model.embed_tokens.weight')
      .subarray(row * size.hidden, (row + 1) * size.hidden)
      .reduce((sum, value) => sum + value, 0),
  )
  report.figure('loaded by transformers', `${said.parameters} parameters in ${said.seconds} s`)
  report.figure('logits of one token', said.logits.map((value) => value.toFixed(4)).join(' '))
  report.figure(
    'a file that is not pinned',
    /closedbook: [a-z_]+/.exec(said.unpinned)?.[0] ?? said.unpinned,
  )
  const least = { unit: '', atMost: 1e-5 }
  report.bar({ what: 'matmul, furthest off', value: furthest(said.matmul, rows), ...least })
  const off = furthest(said.logits, expectedLogits(prompt))
  report.bar({ what: 'forward pass, furthest off', value: off, ...least, atMost: 1e-4 })
  const events = await Array.fromAsync(daemon.client.audit(lease))
  const asked = events.filter(({ protocol, canary }) => protocol === 'hf' && canary !== true)
  const allowed = asked.filter(({ kind, action }) => kind === 'decision' && action === 'allow')
  const left = events.filter(
    ({ protocol, action, canary }) => protocol !== 'hf' && action === 'allow' && canary !== true,
  )
  report.figure(
    'audit',
    `${allowed.length} artifact requests allowed, ${left.length} of any other kind`,
  )
})
