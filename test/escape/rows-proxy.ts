/** Rows 21 to 50, 78 and 79: how the proxy is asked. Its policy allows `web.example` and the names below `wild.example`. */
import type { Attempt, Facts } from './catalogue.ts'

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
): Attempt => ({ row, what, client: 'python raw', run: { py }, seen, audit })

export function proxyAttempts({ nonce }: Facts): readonly Attempt[] {
  const path = (row: number): string => `/${row}-${nonce}`
  return [
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
    plain(
      48,
      'absolute form',
      'raw(get("http://web.example@evil.test/", "Host: evil.test"))',
      /^400 bad_authority$/,
      ['http bad_authority web.example@evil.test'],
    ),
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
