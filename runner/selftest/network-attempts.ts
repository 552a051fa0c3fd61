/**
 * The attempts of `closedbook selftest`: a safe subset of the escape suite, all of it confined to the sandbox. The lease
 * allows one name, which nothing here may reach the outside by: each attempt that uses it must be refused before
 * a way out is opened.
 */
import { randomBytes } from 'node:crypto'
import type { AuditEvent } from '../../policy/audit-event.ts'
import type { Reason } from '../../policy/decision.ts'
import type { Attempt } from './attempt.ts'
import { clientHello } from './client-hello.ts'
import { answerOf, send } from './shell.ts'

export const allowedName = 'allowed.selftest.example'
const proxyPort = 3128
const outside = '198.51.100.7'

/** In the name, the path, or the first bytes of what could not be read. */
const mentions =
  (nonce: string) =>
  ({ host, detail = '' }: AuditEvent): boolean =>
    host?.includes(nonce) === true ||
    detail.includes(nonce) ||
    detail.includes(Buffer.from(nonce).toString('hex'))

const silent = ({ output }: { output: string }): boolean => output === ''

export function networkAttempts(): Attempt[] {
  const tag = (): string => `s${randomBytes(5).toString('hex')}`
  const port = 20_000 + (randomBytes(2).readUInt16BE() % 10_000)
  const census =
    (protocol: AuditEvent['protocol'], address: string, at: number) =>
    (event: AuditEvent): boolean =>
      event.protocol === protocol && event.address === address && event.port === at

  const tcp = (name: string, address: string, at: number): Attempt => ({
    name,
    command: `$b nc -w 2 ${address} ${at} 2>/dev/null`,
    expected: 'closed without a byte',
    meets: silent,
    audit: { reason: 'direct_tcp', of: census('tcp', address, at) },
  })
  const udp = (name: string, address: string, at: number): Attempt => ({
    name,
    command: `$b timeout 3 $b tftp -g -r x -l /dev/null ${address} ${at}`,
    expected: 'refused',
    meets: ({ output }) => /not permitted/.test(output),
    audit: { reason: 'direct_udp', of: census('udp', address, at) },
  })
  const lookup = (name: string, server: string): Attempt => {
    const host = `${tag()}.dns.example`
    return {
      name,
      command: `$b nslookup ${host} ${server}`,
      expected: 'no such name',
      meets: ({ exit, output }) => exit !== 0 && !/Address.*198\.1[89]\./.test(output),
      audit: { reason: 'dns_query', of: (event) => event.host === host },
    }
  }
  const http = (
    name: string,
    status: number,
    reason: Reason,
    make: (tag: string) => string,
  ): Attempt => {
    const nonce = tag()
    return {
      name,
      command: `${send(make(nonce), '127.0.0.1', proxyPort)} | ${answerOf}`,
      expected: `${status} ${reason}`,
      meets: ({ output }) => output === `${status} ${reason}`,
      audit: { reason, of: mentions(nonce) },
    }
  }
  const connect = (name: string, status: number, reason: Reason, make: (tag: string) => string) =>
    http(name, status, reason, (nonce) => {
      const target = make(nonce)
      return `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`
    })
  /** Of an address there is no other trace than itself. */
  const literal = (name: string, target: string): Attempt => ({
    ...connect(name, 403, 'ip_literal', () => target),
    audit: { reason: 'ip_literal', of: ({ host }) => host === target },
  })
  const tls = (name: string, address: string, bytes: Buffer, reason: Reason): Attempt => ({
    name,
    command: `${send(bytes, address, 443)} | $b xxd -p`,
    expected: 'a TLS alert: access denied',
    meets: ({ output }) => output === '15030300020231',
    audit: { reason, of: census('tls', address, 443) },
  })
  const direct = (name: string, address: string, host: string, reason: Reason): Attempt => ({
    name,
    command: `${send(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`, address, 80)} | ${answerOf}`,
    expected: `403 ${reason}`,
    meets: ({ output }) => output === `403 ${reason}`,
    audit: { reason, of: census('http', address, 80) },
  })
  const get = (host: string, more = '', method = 'GET'): string =>
    `${method} http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n${more}Connection: close\r\n\r\n`

  return [
    tcp('TCP to an address', outside, port),
    tcp('SSH', '198.51.100.22', 22),
    tcp('SMTP', '198.51.100.25', 25),
    tcp('git', '198.51.100.94', 9418),
    tcp('DNS over TLS', '198.51.100.85', 853),
    tcp('engine over TCP', '198.51.100.75', 2375),
    tcp('a proxy elsewhere', '198.51.100.31', proxyPort),
    udp('UDP to an address', '198.51.100.8', port),
    udp('QUIC', '198.51.100.44', 443),
    udp('NTP', '198.51.100.12', 123),
    lookup('DNS, the resolver of the sandbox', ''),
    lookup('DNS, a resolver elsewhere', '198.51.100.53'),
    {
      name: 'DNS, an allowed name',
      command: `$b nslookup ${allowedName} 198.51.100.54`,
      expected: 'an address of ours',
      meets: ({ output }) => /Address.*198\.1[89]\.\d+\.\d+/.test(output),
      audit: {
        reason: 'allowed_host',
        of: ({ host, protocol }) => protocol === 'dns' && host === allowedName,
      },
    },
    {
      name: 'IPv6',
      command: '$b nc -w 2 2001:db8::7 443',
      expected: 'refused',
      meets: ({ exit }) => exit !== 0,
      audit: null,
    },
    tls('TLS without a name', '198.51.100.41', Buffer.from('SSH-2.0-x\r\n'), 'direct_tcp'),
    tls(
      'TLS to another host',
      '198.51.100.42',
      clientHello('front.selftest.test'),
      'not_allowed_host',
    ),
    tls(
      'TLS with a hidden name',
      '198.51.100.43',
      clientHello(allowedName, { ech: true }),
      'ech_present',
    ),
    direct('HTTP to another host', '198.51.100.80', 'direct.selftest.test', 'not_allowed_host'),
    direct('HTTP to an address', '198.51.100.81', '198.51.100.81', 'direct_tcp'),
    connect('CONNECT to another host', 403, 'not_allowed_host', (nonce) => `${nonce}.example:443`),
    connect(
      'CONNECT with data in the name',
      403,
      'not_allowed_host',
      (nonce) => `${nonce}${'a'.repeat(40)}.${nonce}.test:443`,
    ),
    connect(
      'CONNECT, the allowed name as a prefix',
      403,
      'not_allowed_host',
      (nonce) => `${allowedName}.${nonce}.test:443`,
    ),
    connect(
      'CONNECT, the allowed name as a suffix',
      403,
      'not_allowed_host',
      (nonce) => `${nonce}.${allowedName}:443`,
    ),
    {
      ...connect(
        'CONNECT, the allowed host at another port',
        403,
        'port_not_allowed',
        () => `${allowedName}:22`,
      ),
      audit: {
        reason: 'port_not_allowed',
        of: ({ host, port: at }) => host === allowedName && at === 22,
      },
    },
    connect('CONNECT with a user', 400, 'bad_authority', (nonce) => `${nonce}@${allowedName}:443`),
    connect(
      'CONNECT with a zero byte',
      400,
      'bad_authority',
      (nonce) => `${allowedName}%00.${nonce}.test:443`,
    ),
    connect(
      'CONNECT, a name with bytes above 127',
      400,
      'bad_request',
      (nonce) => `${nonce}\u00ad.${allowedName}:443`,
    ),
    literal('CONNECT to an address', `${outside}:443`),
    literal('CONNECT, an address as one number', '3325256711:443'),
    literal('CONNECT, an address in hexadecimal', '0xc6336407:443'),
    literal('CONNECT, an address in octal', '0306.063.0144.07:443'),
    literal('CONNECT, an IPv6 address', '[2001:db8::7]:443'),
    literal('CONNECT, an address within IPv6', `[::ffff:${outside}]:443`),
    {
      ...http(
        'CONNECT, another Host',
        421,
        'host_mismatch',
        (nonce) => `CONNECT ${allowedName}:443 HTTP/1.1\r\nHost: ${nonce}.test:443\r\n\r\n`,
      ),
      audit: {
        reason: 'host_mismatch',
        of: ({ protocol, host, reason }) =>
          protocol === 'connect' && host === allowedName && reason === 'host_mismatch',
      },
    },
    http('HTTP by the proxy', 403, 'not_allowed_host', (nonce) => get(`${nonce}.example`)),
    http(
      'HTTP, another Host',
      421,
      'host_mismatch',
      (nonce) =>
        `GET http://${allowedName}/${nonce} HTTP/1.1\r\nHost: ${nonce}.test\r\nConnection: close\r\n\r\n`,
    ),
    http('HTTP, Host twice', 400, 'bad_request', (nonce) =>
      get(`${nonce}.example`, `Host: ${allowedName}\r\n`),
    ),
    http('HTTP, two framings', 400, 'bad_request', (nonce) =>
      get(`${nonce}.example`, 'Content-Length: 1\r\nTransfer-Encoding: chunked\r\n', 'POST'),
    ),
    http(
      'HTTP, a WebSocket',
      403,
      'upgrade_denied',
      (nonce) =>
        `GET http://${allowedName}/${nonce} HTTP/1.1\r\nHost: ${allowedName}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n`,
    ),
    http('HTTP, TRACE', 403, 'method_denied', (nonce) =>
      get(allowedName, '', 'TRACE').replace('/ ', `/${nonce} `),
    ),
    http('SOCKS', 400, 'bad_protocol', (nonce) => `\u0005\u0001\u0000${nonce}`),
    http(
      'TLS to the proxy',
      400,
      'bad_protocol',
      (nonce) => `\u0016\u0003\u0001\u0002\u0000\u0001${nonce}`,
    ),
  ]
}
