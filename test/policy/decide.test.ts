import t from 'tap'
import { classifyAddress, isPublic } from '../../policy/address.ts'
import { matchHost } from '../../policy/allowlist.ts'
import { decide, type EgressRequest, type HelloFacts } from '../../policy/decide.ts'
import { reasons } from '../../policy/decision.ts'
import { canonicalJson, policyHash } from '../../policy/hash.ts'
import { parseAuthority, parseHost } from '../../policy/host.ts'
import { nothingAllowed, policySchema } from '../../policy/policy.ts'
import { printable } from '../../policy/printable.ts'

const addresses: readonly (readonly [address: string, kind: string])[] = [
  ['0.0.0.0', 'unspecified'],
  ['0.255.255.255', 'unspecified'],
  ['1.0.0.0', 'public'],
  ['9.255.255.255', 'public'],
  ['10.0.0.0', 'private'],
  ['10.255.255.255', 'private'],
  ['11.0.0.0', 'public'],
  ['100.63.255.255', 'public'],
  ['100.64.0.0', 'shared'],
  ['100.100.100.200', 'metadata'],
  ['100.127.255.255', 'shared'],
  ['100.128.0.0', 'public'],
  ['126.255.255.255', 'public'],
  ['127.0.0.1', 'loopback'],
  ['127.255.255.255', 'loopback'],
  ['128.0.0.0', 'public'],
  ['168.63.129.16', 'metadata'],
  ['169.253.255.255', 'public'],
  ['169.254.0.1', 'link_local'],
  ['169.254.169.254', 'metadata'],
  ['169.255.0.0', 'public'],
  ['172.15.255.255', 'public'],
  ['172.16.0.0', 'private'],
  ['172.31.255.255', 'private'],
  ['172.32.0.0', 'public'],
  ['192.0.0.8', 'reserved'],
  ['192.0.0.192', 'metadata'],
  ['192.0.2.1', 'documentation'],
  ['192.88.99.1', 'reserved'],
  ['192.167.255.255', 'public'],
  ['192.168.0.1', 'private'],
  ['192.169.0.0', 'public'],
  ['198.17.255.255', 'public'],
  ['198.18.0.0', 'benchmark'],
  ['198.19.255.255', 'benchmark'],
  ['198.20.0.0', 'public'],
  ['198.51.99.255', 'public'],
  ['198.51.100.7', 'documentation'],
  ['203.0.113.7', 'documentation'],
  ['203.0.114.0', 'public'],
  ['223.255.255.255', 'public'],
  ['224.0.0.251', 'multicast'],
  ['239.255.255.250', 'multicast'],
  ['240.0.0.1', 'reserved'],
  ['255.255.255.255', 'broadcast'],
  ['::', 'unspecified'],
  ['::1', 'loopback'],
  ['0:0:0:0:0:0:0:1', 'loopback'],
  ['::2', 'embedded'],
  ['::127.0.0.1', 'embedded'],
  ['::ffff:127.0.0.1', 'embedded'],
  ['::ffff:1.0.0.1', 'embedded'],
  ['::ffff:7f00:1', 'embedded'],
  ['::ffff:0:127.0.0.1', 'embedded'],
  ['64:ff9b::7f00:1', 'embedded'],
  ['64:ff9b:1::1', 'embedded'],
  ['100::1', 'reserved'],
  ['1fff:ffff::1', 'reserved'],
  ['2001::1', 'embedded'],
  ['2001:0:7f00:1::', 'embedded'],
  ['2001:2::1', 'benchmark'],
  ['2001:20::1', 'reserved'],
  ['2001:1ff::1', 'reserved'],
  ['2001:200::1', 'public'],
  ['2001:db7::1', 'public'],
  ['2001:db8::1', 'documentation'],
  ['2001:DB8::1', 'documentation'],
  ['2001:db9::1', 'public'],
  ['2002:7f00:1::', 'embedded'],
  ['2003::1', 'public'],
  ['2620:4f:8000::1', 'reserved'],
  ['3ffe::1', 'public'],
  ['3fff::1', 'documentation'],
  ['3fff:1000::1', 'public'],
  ['4000::1', 'reserved'],
  ['5f00::1', 'reserved'],
  ['fc00::1', 'private'],
  ['fd00:ec2::254', 'metadata'],
  ['fdff::1', 'private'],
  ['fe80::1', 'link_local'],
  ['febf::1', 'link_local'],
  ['fec0::1', 'private'],
  ['ff02::fb', 'multicast'],
  ['', 'invalid'],
  ['fe80::1%eth0', 'invalid'],
  ['0x7f.1', 'invalid'],
  ['0177.0.0.1', 'invalid'],
  ['127.1', 'invalid'],
  ['1.2.3', 'invalid'],
  ['1.2.3.4.5', 'invalid'],
  ['1.2.3.256', 'invalid'],
  ['01.2.3.4', 'invalid'],
  ['1.2.3.4 ', 'invalid'],
  [':', 'invalid'],
  [':::', 'invalid'],
  ['1::2::3', 'invalid'],
  ['1:2:3:4:5:6:7', 'invalid'],
  ['1:2:3:4:5:6:7:8:9', 'invalid'],
  ['1:2:3:4:5:6:7::8', 'invalid'],
  ['12345::', 'invalid'],
  ['g::', 'invalid'],
  ['[::1]', 'invalid'],
  ['huggingface.co', 'invalid'],
]

void t.test('only an address of the class public may be dialed', (t) => {
  for (const [address, kind] of addresses) {
    t.equal(classifyAddress(address), kind, address)
    t.equal(isPublic(address), kind === 'public', address)
  }
  t.end()
})

const rules = {
  allow: ['huggingface.co', '*.hf.co', 'api.models.example'],
  deny: ['bad.hf.co', '*.evil.hf.co'],
}

const hosts: readonly (readonly [host: string, expected: string, why: string])[] = [
  ['huggingface.co', 'allow huggingface.co', 'exact'],
  ['cdn.hf.co', 'allow *.hf.co', 'one label below'],
  ['a.b.c.hf.co', 'allow *.hf.co', 'many labels below'],
  ['hf.co', 'not_allowed_host', 'the wildcard is strict: not itself'],
  ['www.huggingface.co', 'not_allowed_host', 'an exact name has no subdomains'],
  ['evilhuggingface.co', 'not_allowed_host', 'a prefix'],
  ['evilhf.co', 'not_allowed_host', 'the wildcard needs its dot'],
  ['huggingface.co.evil.example', 'not_allowed_host', 'a suffix'],
  ['hf.co.evil.example', 'not_allowed_host', 'a suffix of the wildcard'],
  ['huggingface.com', 'not_allowed_host', 'a longer top level'],
  ['huggingface.c', 'not_allowed_host', 'a shorter top level'],
  ['models.example', 'not_allowed_host', 'a parent'],
  ['spaces.hf.space', 'not_allowed_host', 'a neighbour'],
  ['bad.hf.co', 'denied_host', 'deny wins over a wildcard'],
  ['x.bad.hf.co', 'allow *.hf.co', 'an exact deny has no subdomains'],
  ['x.evil.hf.co', 'denied_host', 'a wildcard deny'],
  ['evil.hf.co', 'allow *.hf.co', 'a wildcard deny is strict too'],
]

void t.test('a host is allowed by its exact name or as a strict subdomain, and deny wins', (t) => {
  for (const [host, expected, why] of hosts) {
    const match = matchHost(rules, host)
    t.equal(match.action === 'allow' ? match.rule : match.reason, expected, `${host}: ${why}`)
  }
  t.equal(matchHost({ allow: ['a.example'], deny: ['a.example'] }, 'a.example').action, 'deny')
  t.end()
})

const policy = policySchema.parse({ version: 1, connect: { ...rules, ports: [80, 443] } })
const tlsOnly = policySchema.parse({ version: 1, connect: rules })

const hello = (serverName: string | null, ech = false): HelloFacts => ({
  kind: 'hello',
  serverName,
  ech,
})
const connect = (authority: string, header?: string): EgressRequest => ({
  kind: 'connect',
  target: parseAuthority(authority),
  hostHeader: header === undefined ? null : parseAuthority(header, 443),
  fault: null,
})
const tls = (facts: HelloFacts): EgressRequest => ({
  kind: 'tls',
  name: facts.kind === 'hello' && facts.serverName !== null ? parseHost(facts.serverName) : null,
  port: 443,
  hello: facts,
})
type Http = EgressRequest & { kind: 'http' }
const http = (target: string, more: Partial<Http> = {}): EgressRequest => ({
  kind: 'http',
  via: 'proxy',
  method: 'GET',
  target: parseAuthority(target, 80),
  hostHeader: parseAuthority(target, 80),
  upgrade: false,
  fault: null,
  ...more,
})
const direct = (header: string | null): EgressRequest =>
  http('x.example', {
    via: 'direct',
    target: null,
    hostHeader: header === null ? null : parseAuthority(header, 80),
  })

const decisions: readonly (readonly [request: EgressRequest, expected: string, why: string])[] = [
  [connect('huggingface.co:443'), 'allow allowed_host', 'an allowed host'],
  [connect('huggingface.co:80'), 'allow allowed_host', 'plain HTTP in a tunnel'],
  [connect('huggingface.co:22'), 'deny port_not_allowed', 'SSH to an allowed host'],
  [connect('huggingface.co:8443'), 'deny port_not_allowed', 'another port'],
  [connect('evil.example:443'), 'deny not_allowed_host', 'another host'],
  [connect('evil.example:22'), 'deny not_allowed_host', 'the host is weighed before the port'],
  [connect('bad.hf.co:443'), 'deny denied_host', 'a denied host'],
  [connect('198.51.100.7:443'), 'deny ip_literal', 'an address'],
  [connect('u@huggingface.co:443'), 'deny bad_authority', 'userinfo'],
  [connect('huggingface.co:443', 'huggingface.co:443'), 'allow allowed_host', 'the same twice'],
  [connect('huggingface.co:443', 'HUGGINGFACE.co'), 'allow allowed_host', 'without its port'],
  [connect('huggingface.co:443', 'evil.example'), 'deny host_mismatch', 'another Host'],
  [connect('huggingface.co:443', 'huggingface.co:80'), 'deny host_mismatch', 'another port'],
  [connect('huggingface.co:443', 'not a host'), 'deny host_mismatch', 'a Host that is none'],
  [
    {
      kind: 'connect',
      target: parseAuthority('huggingface.co:443'),
      hostHeader: null,
      fault: 'bad_request',
    },
    'deny bad_request',
    'a fault of the head comes first',
  ],
  [
    { kind: 'hello', host: 'huggingface.co', hello: hello('huggingface.co') },
    'allow allowed_host',
    'as asked',
  ],
  [
    { kind: 'hello', host: 'huggingface.co', hello: hello('HuggingFace.CO') },
    'allow allowed_host',
    'case',
  ],
  [
    { kind: 'hello', host: 'huggingface.co', hello: hello('cdn.hf.co') },
    'deny sni_mismatch',
    'another allowed name',
  ],
  [
    { kind: 'hello', host: 'huggingface.co', hello: hello('evil.example') },
    'deny sni_mismatch',
    'fronting',
  ],
  [
    { kind: 'hello', host: 'huggingface.co', hello: hello('huggingface.co\0') },
    'deny sni_mismatch',
    'a zero byte',
  ],
  [{ kind: 'hello', host: 'huggingface.co', hello: hello(null) }, 'deny sni_missing', 'no name'],
  [
    { kind: 'hello', host: 'huggingface.co', hello: hello('huggingface.co', true) },
    'deny ech_present',
    'a hidden name',
  ],
  [
    { kind: 'hello', host: 'huggingface.co', hello: { kind: 'not_tls' } },
    'deny not_tls',
    'SSH in the tunnel',
  ],
  [
    { kind: 'hello', host: 'huggingface.co', hello: { kind: 'timeout' } },
    'deny hello_timeout',
    'silence',
  ],
  [
    { kind: 'hello', host: 'huggingface.co', hello: { kind: 'ended' } },
    'deny not_tls',
    'it went away',
  ],
  [
    { kind: 'hello', host: 'evil.example', hello: hello('evil.example') },
    'deny not_allowed_host',
    'it is weighed again',
  ],
  [tls(hello('huggingface.co')), 'allow allowed_host', 'TLS that did not ask the proxy'],
  [tls(hello('evil.example')), 'deny not_allowed_host', 'to another host'],
  [tls(hello('huggingface.co', true)), 'deny ech_present', 'with a hidden name'],
  [tls(hello(null)), 'deny direct_tcp', 'without a name'],
  [tls(hello('198.51.100.7')), 'deny direct_tcp', 'with an address for a name'],
  [tls(hello('bad name')), 'deny bad_authority', 'with a name that is none'],
  [tls({ kind: 'not_tls' }), 'deny direct_tcp', 'something else on port 443'],
  [tls({ kind: 'timeout' }), 'deny direct_tcp', 'nothing on port 443'],
  [http('huggingface.co'), 'allow allowed_host', 'an absolute form'],
  [http('huggingface.co:8080'), 'deny port_not_allowed', 'another port'],
  [http('huggingface.co:443'), 'deny port_not_allowed', 'plain HTTP to the TLS port'],
  [http('evil.example'), 'deny not_allowed_host', 'another host'],
  [http('198.51.100.7'), 'deny ip_literal', 'an address'],
  [
    http('huggingface.co', { hostHeader: parseAuthority('evil.example', 80) }),
    'deny host_mismatch',
    'two hosts',
  ],
  [http('huggingface.co', { hostHeader: null }), 'allow allowed_host', 'HTTP/1.0 without Host'],
  [
    http('huggingface.co', { target: null }),
    'deny bad_request',
    'a proxy asked in the origin form',
  ],
  [http('huggingface.co', { fault: 'bad_request' }), 'deny bad_request', 'a fault of the head'],
  [http('huggingface.co', { method: 'TRACE' }), 'deny method_denied', 'TRACE'],
  [http('huggingface.co', { method: 'QUERY' }), 'deny method_denied', 'an unknown method'],
  [http('evil.example', { method: 'TRACE' }), 'deny not_allowed_host', 'the host comes first'],
  [http('huggingface.co', { upgrade: true }), 'deny upgrade_denied', 'a WebSocket'],
  [http('huggingface.co', { via: 'tunnel' }), 'allow allowed_host', 'inside a CONNECT to port 80'],
  [
    http('huggingface.co', { via: 'tunnel', hostHeader: parseAuthority('cdn.hf.co', 80) }),
    'deny host_mismatch',
    'another host inside it',
  ],
  [direct('huggingface.co'), 'allow allowed_host', 'plain HTTP that did not ask the proxy'],
  [direct('evil.example'), 'deny not_allowed_host', 'to another host'],
  [direct('huggingface.co:8080'), 'deny port_not_allowed', 'for another port'],
  [direct('169.254.169.254'), 'deny direct_tcp', 'metadata'],
  [direct('[2001:db8::1]'), 'deny direct_tcp', 'an IPv6 address'],
  [direct('localhost'), 'deny bad_authority', 'one label'],
  [direct(null), 'deny direct_tcp', 'no Host'],
  [{ kind: 'dns', name: parseHost('cdn.hf.co') }, 'allow allowed_host', 'an allowed name'],
  [{ kind: 'dns', name: parseHost('secret.evil.example') }, 'deny dns_query', 'another name'],
  [{ kind: 'dns', name: parseHost('bad.hf.co') }, 'deny denied_host', 'a denied name'],
  [{ kind: 'dns', name: parseHost('_x.hf.co') }, 'deny dns_query', 'what is no host name'],
  [
    { kind: 'dns', name: parseHost('7.100.51.198.in-addr.arpa') },
    'deny dns_query',
    'a reverse lookup',
  ],
  [
    {
      kind: 'addresses',
      host: 'huggingface.co',
      addresses: [
        { address: '198.51.100.7', dialable: true },
        { address: '169.254.169.254', dialable: false },
      ],
    },
    'deny address_not_public',
    'one bad address is enough',
  ],
  [{ kind: 'addresses', host: 'huggingface.co', addresses: [] }, 'deny dns_failed', 'no address'],
  [
    {
      kind: 'addresses',
      host: 'huggingface.co',
      addresses: [{ address: '198.51.100.7', dialable: true }],
    },
    'allow allowed_host',
    'all good',
  ],
  [{ kind: 'tcp' }, 'deny direct_tcp', 'TCP to an address'],
  [{ kind: 'udp' }, 'deny direct_udp', 'UDP'],
  [{ kind: 'icmp' }, 'deny direct_icmp', 'ICMP'],
  [{ kind: 'other' }, 'deny direct_other', 'another protocol'],
  [{ kind: 'model', fault: null }, 'allow allowed_gateway', 'a model call'],
  [{ kind: 'model', fault: 'budget_spent' }, 'deny budget_spent', 'a model call too many'],
]

void t.test('each request is allowed or denied with its reason', (t) => {
  for (const [request, expected, why] of decisions) {
    const { action, reason } = decide(policy, request)
    t.equal(`${action} ${reason}`, expected, `${request.kind}: ${why}`)
  }
  t.end()
})

void t.test('a policy that allows nothing allows no request but to its own doors', (t) => {
  for (const [request, , why] of decisions) {
    if (['model', 'exec', 'addresses'].includes(request.kind)) continue
    const { action, reason } = decide(nothingAllowed, request)
    t.equal(action, 'deny', `${request.kind}: ${why}`)
    t.ok(reasons.includes(reason))
  }
  t.end()
})

void t.test('port 80 is closed unless the policy names it', (t) => {
  t.equal(decide(tlsOnly, connect('huggingface.co:80')).reason, 'port_not_allowed')
  t.equal(decide(tlsOnly, http('huggingface.co')).reason, 'port_not_allowed')
  t.equal(decide(tlsOnly, direct('huggingface.co')).reason, 'port_not_allowed')
  t.equal(decide(tlsOnly, connect('huggingface.co:443')).action, 'allow')
  const plain = policySchema.parse({ version: 1, connect: { ...rules, ports: [80] } })
  t.equal(decide(plain, tls(hello('huggingface.co'))).reason, 'port_not_allowed')
  t.end()
})

void t.test('the hash names what is allowed, not how it was written', (t) => {
  const one = policySchema.parse({ version: 1, connect: { allow: ['a.example'], ports: [443] } })
  const two = policySchema.parse({ connect: { ports: [443], allow: ['a.example'] }, version: 1 })
  t.equal(policyHash(one), policyHash(two))
  t.match(policyHash(one), /^[0-9a-f]{64}$/)
  t.not(policyHash(one), policyHash(nothingAllowed))
  t.equal(
    canonicalJson({ b: [1, { d: null, c: 'x' }], a: undefined }),
    '{"b":[1,{"c":"x","d":null}]}',
  )
  t.end()
})

void t.test(
  'text from a sandbox is shown without control characters and within its length',
  (t) => {
    t.equal(printable('a\x1b[31mb\n', 100), 'a\\x1b[31mb\\x0a')
    t.equal(printable('\u202ex\\', 100), '\\u{202e}x\\\\')
    t.equal(printable('\0'.repeat(1000), 10).length, 10)
    t.end()
  },
)
