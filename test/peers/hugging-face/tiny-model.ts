/** A model that libraries take for one: configuration, word-level tokenizer, one tensor. */
import { bytes, type Content } from '../../support/hub.ts'

const tokenizer = {
  version: '1.0',
  truncation: null,
  padding: null,
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: { type: 'Whitespace' },
  post_processor: null,
  decoder: null,
  model: { type: 'WordLevel', vocab: { '[UNK]': 0, hello: 1, world: 2 }, unk_token: '[UNK]' },
}

function safetensors(): Buffer {
  const shape = [4, 8]
  const data = Buffer.alloc(4 * 8 * 4, 1)
  const header = Buffer.from(
    JSON.stringify({ 'embed.weight': { dtype: 'F32', shape, data_offsets: [0, data.length] } }),
  )
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(header.length))
  return Buffer.concat([length, header, data])
}

export const tinyModel = (): Record<string, Content | string> => ({
  'config.json': JSON.stringify({
    model_type: 'llama',
    architectures: ['LlamaForCausalLM'],
    hidden_size: 8,
    intermediate_size: 8,
    num_hidden_layers: 1,
    num_attention_heads: 1,
    vocab_size: 4,
  }),
  'tokenizer.json': JSON.stringify(tokenizer),
  'tokenizer_config.json': JSON.stringify({
    tokenizer_class: 'PreTrainedTokenizerFast',
    unk_token: '[UNK]',
  }),
  'README.md': '# tiny\n',
  'modeling_tiny.py': 'raise SystemExit("upstream code")\n',
  'model.safetensors': bytes(safetensors()),
  'sub/folder/extra.json': '[]',
})
