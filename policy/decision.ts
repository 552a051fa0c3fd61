/**
 * A decision is policy's answer to one request: an action and the reason for it. It is data, never an error.
 * The reasons are a closed set; the audit log, the refusals and the reports all use these words.
 */
export const reasons = [
  // allowed
  'allowed_host',
  'allowed_gateway',
  'allowed_artifact',
  'noise',
  // names, addresses, ports
  'not_allowed_host',
  'denied_host',
  'port_not_allowed',
  'bad_authority',
  'ip_literal',
  'address_not_public',
  'dns_failed',
  // traffic that did not ask the proxy
  'dns_query',
  'direct_tcp',
  'direct_udp',
  'direct_icmp',
  'direct_other',
  // protocol
  'sni_missing',
  'sni_mismatch',
  'ech_present',
  'not_tls',
  'hello_timeout',
  'host_mismatch',
  'bad_request',
  'bad_protocol',
  'upgrade_denied',
  'method_denied',
  'path_denied',
  // model gateway
  'model_denied',
  'tool_denied',
  'remote_url_denied',
  'body_invalid',
  'body_field_denied',
  'budget_spent',
  'gateway_shut',
  'replay_exhausted',
  'replay_mismatch',
  // Hugging Face gateway
  'repo_not_allowed',
  'revision_not_allowed',
  'file_not_allowed',
  'write_denied',
  'redirect_denied',
  // limits, faults
  'limit_conns',
  'limit_bytes',
  'upstream_timeout',
  'upstream_bad',
  'internal_error',
] as const

export type Reason = (typeof reasons)[number]

export type Decision =
  | { readonly action: 'allow'; readonly reason: Reason; readonly rule: string }
  | { readonly action: 'deny'; readonly reason: Reason; readonly rule: string }

export const allow = (reason: Reason, rule: string): Decision => ({ action: 'allow', reason, rule })
export const deny = (reason: Reason, rule = 'default'): Decision => ({
  action: 'deny',
  reason,
  rule,
})
