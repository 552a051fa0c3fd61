/**
 * The hosts of the Hugging Face Hub, as published by `/.well-known/meta.json` and the Hub's own documentation. The list
 * moves, so it carries its date. The gateway follows redirects to the file hosts only; `tunnel` opens all of them.
 */
export const huggingFaceHosts = {
  /** When the list was last compared with what is published. */
  asOf: '2026-11-29',
  hub: ['huggingface.co', 'hf.co', 'huggingface.com', 'huggingface.cn'],
  files: [
    'cdn-lfs.hf.co',
    'cdn-lfs-us-1.hf.co',
    'cdn-lfs-eu-1.hf.co',
    'cdn-lfs.huggingface.co',
    'cdn-lfs-us-1.huggingface.co',
    'cdn-lfs-eu-1.huggingface.co',
    'cas-bridge.xethub.hf.co',
    'aws.cdn.hf.co',
    'us.aws.cdn.hf.co',
    'us-east-1.aws.cdn.hf.co',
    'us-west-2.aws.cdn.hf.co',
    'eu-west-3.aws.cdn.hf.co',
    'ap-southeast-1.aws.cdn.hf.co',
    'us.gcp.cdn.hf.co',
    'us-east1.us.gcp.cdn.hf.co',
    'us-central1.us.gcp.cdn.hf.co',
    'us-west4.us.gcp.cdn.hf.co',
    'europe-west4.us.gcp.cdn.hf.co',
    'asia-southeast1.us.gcp.cdn.hf.co',
  ],
  xet: [
    'cas-server.xethub.hf.co',
    'cas-server.xethub-eu.hf.co',
    'transfer.xethub.hf.co',
    'transfer.xethub-eu.hf.co',
  ],
} as const satisfies Readonly<Record<string, string | readonly string[]>>

export const tunnelHosts: readonly string[] = [
  ...huggingFaceHosts.hub,
  ...huggingFaceHosts.files,
  ...huggingFaceHosts.xet,
]
