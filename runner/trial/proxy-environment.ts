/** Variables by which programs in a sandbox find the proxy. */
import type { Policy } from '../../policy/policy.ts'

const proxy = 'http://127.0.0.1:3128'
const variables = {
  HTTP_PROXY: proxy,
  HTTPS_PROXY: proxy,
  NO_PROXY: '127.0.0.1,localhost,sandbox',
}

/** Only where something is allowed: else a direct attempt, refused at once, tells a program more. */
export function proxyEnvironment(policy: Policy): Record<string, string> {
  if (policy.connect.allow.length === 0 && policy.huggingface?.tunnel !== true) return {}
  const lower = Object.entries(variables).map(([name, value]) => [name.toLowerCase(), value])
  return { ...variables, ...(Object.fromEntries(lower) as Record<string, string>) }
}
