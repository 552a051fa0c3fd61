/**
 * A task's model artifacts: they become part of the policy of its lease, and the variables by which libraries find the
 * gateway. `main` of a pinned repository is the pinned commit there, so a program needs to know nothing of it.
 */
import type { HuggingFaceRepo } from '../../policy/hugging-face.ts'
import type { Policy } from '../../policy/policy.ts'

/** What the configuration's policy opens, and the task's artifacts. */
export function leasePolicy(policy: Policy, artifacts: readonly HuggingFaceRepo[]): Policy {
  if (artifacts.length === 0) return policy
  const repos = (policy.huggingface?.repos ?? []).map((entry) => ({ ...entry }))
  for (const { repo, revision, files, maxBytes } of artifacts) {
    const same = repos.find((entry) => entry.repo === repo && entry.revision === revision)
    if (same === undefined)
      repos.push({ repo, revision, files: [...files], ...(maxBytes ? { maxBytes } : {}) })
    else same.files = [...new Set([...same.files, ...files])]
  }
  return { ...policy, huggingface: { tunnel: false, ...policy.huggingface, repos } }
}

const endpoint = 'http://127.0.0.1:8401'
const timeoutSeconds = '600'

export const huggingFaceVariables: Readonly<Record<string, string>> = {
  HF_ENDPOINT: endpoint,
  // Files come from the gateway or not at all: clients of Xet know no other way and hang.
  HF_HUB_DISABLE_XET: '1',
  HF_HUB_DISABLE_TELEMETRY: '1',
  HF_HUB_DISABLE_UPDATE_CHECK: '1',
  HF_HUB_DISABLE_IMPLICIT_TOKEN: '1',
  // A file that nobody has fetched before takes its time.
  HF_HUB_ETAG_TIMEOUT: timeoutSeconds,
  HF_HUB_DOWNLOAD_TIMEOUT: timeoutSeconds,
  // Else transformers asks a Space for another format.
  DISABLE_SAFETENSORS_CONVERSION: '1',
  NO_PROXY: '127.0.0.1,localhost,sandbox',
  no_proxy: '127.0.0.1,localhost,sandbox',
}

export const huggingFaceEnvironment = (policy: Policy): Record<string, string> =>
  (policy.huggingface?.repos.length ?? 0) === 0 ? {} : { ...huggingFaceVariables }
