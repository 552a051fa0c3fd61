import t from 'tap'
import { canonicalHostPattern, parseAuthority, parseHost } from '../../policy/host.ts'
import { policySchema } from '../../policy/policy.ts'

type Row = readonly [text: string, expected: string, why: string]

const long = (labels: number, length: number): string =>
  Array.from({ length: labels }, () => 'a'.repeat(length)).join('.')

/** Expected is the canonical `host:port`, or the reason of the refusal. */
const authorities: readonly Row[] = [
  ['huggingface.co:443', 'huggingface.co:443', 'the plain case'],
  ['huggingface.co:80', 'huggingface.co:80', 'the other port'],
  ['HUGGINGFACE.CO:443', 'huggingface.co:443', 'upper case is canonicalised'],
  ['HuggingFace.Co:443', 'huggingface.co:443', 'mixed case is canonicalised'],
  ['huggingface.co.:443', 'huggingface.co:443', 'one trailing dot is stripped'],
  ['HUGGINGFACE.CO.:443', 'huggingface.co:443', 'case and dot together'],
  ['a.b:1', 'a.b:1', 'the shortest name and port'],
  ['a.b:65535', 'a.b:65535', 'the highest port'],
  ['cdn-lfs-us-1.hf.co:443', 'cdn-lfs-us-1.hf.co:443', 'hyphens and digits inside'],
  ['1a.2b.c3:443', '1a.2b.c3:443', 'labels may begin with a digit'],
  ['1.2.3.example:443', '1.2.3.example:443', 'numeric labels before a name'],
  ['0x7f.example:443', '0x7f.example:443', 'a hexadecimal label before a name'],
  ['xn--mnchen-3ya.example:443', 'xn--mnchen-3ya.example:443', 'IDN in its ASCII form'],
  ['example.xn--p1ai:443', 'example.xn--p1ai:443', 'a top-level IDN in its ASCII form'],
  ['a--b.example:443', 'a--b.example:443', 'two hyphens inside a label'],
  [`${'a'.repeat(63)}.example:443`, `${'a'.repeat(63)}.example:443`, 'the longest label'],
  [`${long(4, 62)}:443`, `${long(4, 62)}:443`, '251 characters of name'],
  ['huggingface.co:8443', 'huggingface.co:8443', 'well formed; the policy weighs the port'],
  ['huggingface.co:22', 'huggingface.co:22', 'well formed; the policy weighs the port'],

  ['huggingface.co', 'bad_authority', 'no port'],
  ['huggingface.co:', 'port_not_allowed', 'empty port'],
  ['huggingface.co:0', 'port_not_allowed', 'port 0'],
  ['huggingface.co:65536', 'port_not_allowed', 'one too many'],
  ['huggingface.co:99999', 'port_not_allowed', 'five digits, too many'],
  ['huggingface.co:00000', 'port_not_allowed', 'zero in five digits'],
  ['huggingface.co:0443', 'bad_authority', 'leading zero'],
  ['huggingface.co:000443', 'bad_authority', 'six digits'],
  ['huggingface.co:65979', 'port_not_allowed', '443 modulo 65536'],
  ['huggingface.co:+443', 'bad_authority', 'a sign'],
  ['huggingface.co:-443', 'bad_authority', 'a negative port'],
  ['huggingface.co:443 ', 'bad_authority', 'a blank behind'],
  ['huggingface.co: 443', 'bad_authority', 'a blank before the port'],
  ['huggingface.co :443', 'bad_authority', 'a blank behind the name'],
  [' huggingface.co:443', 'bad_authority', 'a blank in front'],
  ['\thuggingface.co:443', 'bad_authority', 'a tab in front'],
  ['hugging\tface.co:443', 'bad_authority', 'a tab inside, which URL parsers drop'],
  ['hugging\nface.co:443', 'bad_authority', 'a newline inside, which URL parsers drop'],
  ['huggingface.co\r\n:443', 'bad_authority', 'a line end'],
  ['huggingface.co:443\r\nHost: evil.example', 'bad_authority', 'header injection'],
  ['huggingface.co\0:443', 'bad_authority', 'a zero byte'],
  ['huggingface.co\0.evil.example:443', 'bad_authority', 'a zero byte inside'],
  ['huggingface.co%00:443', 'bad_authority', 'an escaped zero byte'],
  ['huggingface%2eco:443', 'bad_authority', 'an escaped dot'],
  ['huggingface.co%0d%0a:443', 'bad_authority', 'an escaped line end'],
  ['%68uggingface.co:443', 'bad_authority', 'an escaped letter'],
  ['huggingface.co:0x1bb', 'bad_authority', 'a hexadecimal port'],
  ['huggingface.co:https', 'bad_authority', 'a service name'],
  ['huggingface.co:4e2', 'bad_authority', 'an exponent'],
  ['huggingface.co:443:443', 'bad_authority', 'two ports'],
  ['huggingface.co:443@evil.example', 'bad_authority', 'userinfo in disguise'],
  ['user@huggingface.co:443', 'bad_authority', 'userinfo'],
  ['user:pass@huggingface.co:443', 'bad_authority', 'userinfo with a password'],
  ['evil.example@huggingface.co:443', 'bad_authority', 'a name as userinfo'],
  ['huggingface.co@evil.example:443', 'bad_authority', 'the allowed name as userinfo'],
  ['huggingface.co\\@evil.example:443', 'bad_authority', 'a backslash before userinfo'],
  ['huggingface.co\\.evil.example:443', 'bad_authority', 'a backslash'],
  ['huggingface.co/:443', 'bad_authority', 'a path'],
  ['huggingface.co:443/', 'bad_authority', 'a path behind the port'],
  ['huggingface.co:443?x', 'bad_authority', 'a query'],
  ['huggingface.co:443#x', 'bad_authority', 'a fragment'],
  ['huggingface.co#evil.example:443', 'bad_authority', 'a fragment inside'],
  ['https://huggingface.co:443', 'bad_authority', 'a URL'],
  ['//huggingface.co:443', 'bad_authority', 'a network path'],
  ['', 'bad_authority', 'nothing'],
  [':443', 'bad_authority', 'no name'],
  ['.:443', 'bad_authority', 'the root'],
  ['..:443', 'bad_authority', 'empty labels only'],
  ['.huggingface.co:443', 'bad_authority', 'a leading dot'],
  ['huggingface..co:443', 'bad_authority', 'an empty label'],
  ['huggingface.co..:443', 'bad_authority', 'two trailing dots'],
  ['localhost:443', 'bad_authority', 'one label'],
  ['localhost.:443', 'bad_authority', 'one label and a dot'],
  ['co:443', 'bad_authority', 'a top-level domain'],
  ['-huggingface.co:443', 'bad_authority', 'a label begins with a hyphen'],
  ['huggingface-.co:443', 'bad_authority', 'a label ends with a hyphen'],
  ['huggingface.-co:443', 'bad_authority', 'the last label begins with a hyphen'],
  ['-:443', 'bad_authority', 'a hyphen alone'],
  ['_dmarc.huggingface.co:443', 'bad_authority', 'an underscore'],
  ['*.huggingface.co:443', 'bad_authority', 'a wildcard is no host'],
  ['*:443', 'bad_authority', 'a star is no host'],
  ['huggingface,co:443', 'bad_authority', 'a comma'],
  ['huggingface.co,evil.example:443', 'bad_authority', 'a list'],
  ['huggingface.co;evil.example:443', 'bad_authority', 'a semicolon'],
  ["huggingface.co':443", 'bad_authority', 'a quote'],
  ['"huggingface.co":443', 'bad_authority', 'double quotes'],
  ['(huggingface.co):443', 'bad_authority', 'brackets'],
  ['huggingface.co|evil:443', 'bad_authority', 'a bar'],
  ['$(x).huggingface.co:443', 'bad_authority', 'a shell word'],
  [`${'a'.repeat(64)}.example:443`, 'bad_authority', 'a label of 64'],
  [`${long(4, 63)}:443`, 'bad_authority', '255 characters of name'],
  [`${long(2000, 30)}:443`, 'bad_authority', 'a very long name'],
  ['huggingfa\u00adce.co:443', 'bad_authority', 'a soft hyphen, which URL parsers drop'],
  ['hugging\u200bface.co:443', 'bad_authority', 'a zero-width space'],
  ['hugging\u2060face.co:443', 'bad_authority', 'a word joiner'],
  ['hugging\ufefface.co:443', 'bad_authority', 'a byte order mark'],
  ['huggingface\u3002co:443', 'bad_authority', 'an ideographic full stop'],
  ['huggingface\uff0eco:443', 'bad_authority', 'a fullwidth full stop'],
  ['huggingface\uff61co:443', 'bad_authority', 'a halfwidth ideographic full stop'],
  ['\uff48uggingface.co:443', 'bad_authority', 'a fullwidth letter'],
  ['hugg\u0456ngface.co:443', 'bad_authority', 'a Cyrillic letter'],
  ['huggingfa\u212ae.co:443', 'bad_authority', 'the Kelvin sign, whose lower case is k'],
  ['hugging\u017fface.co:443', 'bad_authority', 'the long s, whose upper case is S'],
  ['m\u00fcnchen.example:443', 'bad_authority', 'IDN as text'],
  ['huggingface.co\u00e9:443', 'bad_authority', 'a byte above 127'],
  ['\u202eoc.ecafgniggu\u202ch.example:443', 'bad_authority', 'right-to-left override'],
  ['huggingface.\u2488co:443', 'bad_authority', 'a digit with its full stop'],
  ['huggingface.co:\uff14\uff14\uff13', 'bad_authority', 'a port in fullwidth digits'],
  ['huggingface.co:\u0664\u0664\u0663', 'bad_authority', 'a port in Arabic digits'],

  ['127.0.0.1:443', 'ip_literal', 'loopback'],
  ['198.51.100.7:443', 'ip_literal', 'an address, however public'],
  ['198.51.100.7.:443', 'ip_literal', 'an address with a trailing dot'],
  ['169.254.169.254:80', 'ip_literal', 'metadata'],
  ['0.0.0.0:443', 'ip_literal', 'this host'],
  ['0:443', 'ip_literal', 'zero is this host'],
  ['127.1:443', 'ip_literal', 'two parts'],
  ['127.0.1:443', 'ip_literal', 'three parts'],
  ['2130706433:443', 'ip_literal', 'one decimal number'],
  ['0x7f000001:443', 'ip_literal', 'one hexadecimal number'],
  ['0X7F.1:443', 'ip_literal', 'upper-case hexadecimal'],
  ['0x7f.0.0.1:443', 'ip_literal', 'a hexadecimal part'],
  ['0x7f.1:443', 'ip_literal', 'hexadecimal and short'],
  ['0177.0.0.1:443', 'ip_literal', 'an octal part'],
  ['017700000001:443', 'ip_literal', 'one octal number'],
  ['0x:443', 'ip_literal', 'an empty hexadecimal number is zero'],
  ['127.0.0.0x1:443', 'ip_literal', 'hexadecimal at the end'],
  ['300.1.2.3:443', 'ip_literal', 'looks like an address'],
  ['1.2.3.4.5:443', 'ip_literal', 'five numbers'],
  ['256.256.256.256:443', 'ip_literal', 'numbers that are too great'],
  ['4294967296:443', 'ip_literal', 'beyond 32 bits'],
  ['[::1]:443', 'ip_literal', 'IPv6 loopback'],
  ['[::]:443', 'ip_literal', 'IPv6 unspecified'],
  ['[2001:db8::1]:443', 'ip_literal', 'IPv6'],
  ['[2001:DB8::1]:443', 'ip_literal', 'IPv6 in upper case'],
  ['[::ffff:127.0.0.1]:443', 'ip_literal', 'IPv4-mapped'],
  ['[::ffff:7f00:1]:443', 'ip_literal', 'IPv4-mapped in hexadecimal'],
  ['[::127.0.0.1]:443', 'ip_literal', 'IPv4-compatible'],
  ['[64:ff9b::7f00:1]:443', 'ip_literal', 'NAT64'],
  ['[2002:7f00:1::]:443', 'ip_literal', '6to4'],
  ['[fd00:ec2::254]:80', 'ip_literal', 'metadata over IPv6'],
  ['::1:443', 'ip_literal', 'IPv6 without brackets'],
  ['2001:db8::1:443', 'ip_literal', 'IPv6 without brackets'],
  ['::ffff:127.0.0.1:443', 'ip_literal', 'mapped, no brackets, and a port'],
  ['[::1]', 'ip_literal', 'no port'],
  ['[fe80::1%25eth0]:443', 'bad_authority', 'a zone'],
  ['[::ffff:198.51.100.7%x.huggingface.co]:443', 'bad_authority', 'the allowed name as a zone'],
  ['[huggingface.co]:443', 'bad_authority', 'a name in brackets'],
  ['[huggingface.co:443', 'bad_authority', 'an open bracket'],
  ['[]:443', 'bad_authority', 'empty brackets'],
  ['[v1.x]:443', 'bad_authority', 'an address of the future'],
  ['huggingface.co.127:443', 'bad_authority', 'a number as the last label'],
  ['huggingface.co.0x7f:443', 'bad_authority', 'a hexadecimal number as the last label'],
  ['127.0.0.1.example:443', '127.0.0.1.example:443', 'a name; its address is vetted later'],
  ['127.0.0.1:443@huggingface.co:443', 'ip_literal', 'an address as userinfo'],
]

const shown = (result: ReturnType<typeof parseAuthority>): string =>
  result.ok ? `${result.host}:${result.port}` : result.reason

void t.test('an authority is canonicalised, or refused with the reason', (t) => {
  t.ok(authorities.length >= 150, 'a table worth the name')
  for (const [text, expected, why] of authorities) {
    t.equal(shown(parseAuthority(text)), expected, `${JSON.stringify(text)}: ${why}`)
  }
  t.end()
})

void t.test('what is accepted is a fixed point, and names itself in lower case', (t) => {
  for (const [text] of authorities) {
    const first = parseAuthority(text)
    if (!first.ok) continue
    t.match(first.host, /^[a-z0-9.-]+[a-z0-9-]$/)
    t.strictSame(parseAuthority(`${first.host}:${first.port}`), first, text)
    t.strictSame(parseHost(first.host), { ok: true, host: first.host })
  }
  t.end()
})

void t.test('a port may be left out where there is a default', (t) => {
  t.strictSame(parseAuthority('a.example', 80), { ok: true, host: 'a.example', port: 80 })
  t.strictSame(parseAuthority('a.example:81', 80), { ok: true, host: 'a.example', port: 81 })
  t.equal(shown(parseAuthority('a.example:', 80)), 'port_not_allowed')
  t.equal(shown(parseAuthority('[::1]', 80)), 'ip_literal')
  t.equal(shown(parseAuthority('::1', 80)), 'ip_literal')
  t.equal(shown(parseAuthority('198.51.100.7', 80)), 'ip_literal')
  t.end()
})

void t.test('no odd text is taken for the allowed name, only its own spellings', (t) => {
  // A linear congruential generator: the same texts in every run.
  let seed = 20_260_101
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((seed / 2_147_483_648) * below)
  }
  const odd = [
    '.',
    '-',
    '%',
    '@',
    ':',
    '/',
    '\\',
    '\0',
    '\t',
    '\u00ad',
    '\u3002',
    '0x',
    '*',
    '[',
    ']',
    ' ',
  ]
  const base = 'huggingface.co:443'
  const accepted = new Set<string>()
  for (let round = 0; round < 100_000; round += 1) {
    let text = base
    for (let edit = random(3); edit >= 0; edit -= 1) {
      const at = random(text.length + 1)
      const insert = random(3) === 0 ? '' : (odd[random(odd.length)] ?? '')
      text = text.slice(0, at) + insert + text.slice(at + random(2))
    }
    const result = parseAuthority(text)
    if (result.ok && result.host === 'huggingface.co') accepted.add(text)
  }
  for (const text of accepted) t.match(text, /^huggingface\.co\.?:[1-9][0-9]*$/)
  t.ok(accepted.has('huggingface.co.:443'), 'the generator reaches spellings that are right')
  t.end()
})

/** Expected is `ok`, or what the message must say. */
const patterns: readonly Row[] = [
  ['huggingface.co', 'ok', 'a name'],
  ['*.hf.co', 'ok', 'a wildcard'],
  ['*.us.aws.cdn.hf.co', 'ok', 'a deep wildcard'],
  ['xn--mnchen-3ya.example', 'ok', 'IDN in its ASCII form'],
  ['HuggingFace.co', 'write "huggingface.co"', 'case'],
  ['huggingface.co.', 'write "huggingface.co"', 'a trailing dot'],
  ['*.HF.co.', 'write "*.hf.co"', 'case and dot with a wildcard'],
  ['.hf.co', 'write "*.hf.co"', 'a leading dot, as other tools want it'],
  ['*hf.co', 'write "*.hf.co"', 'a star without its dot'],
  ['https://huggingface.co', 'write "huggingface.co"', 'a URL'],
  ['https://huggingface.co/models?x#y', 'write "huggingface.co"', 'a URL with a path'],
  ['huggingface.co:443', 'write "huggingface.co"', 'a port'],
  ['huggingface.co/', 'write "huggingface.co"', 'a slash'],
  [' huggingface.co ', 'write "huggingface.co"', 'blanks'],
  ['', 'empty', 'nothing'],
  ['*', 'wildcard for everything', 'a star alone'],
  ['**', 'wildcard for everything', 'two stars'],
  ['*.*', 'not a host name', 'two stars with a dot'],
  ['*.com', 'two labels', 'a whole top-level domain'],
  ['localhost', 'two labels', 'one label'],
  ['a.*.example', 'not a host name', 'a star inside'],
  ['*.*.example', 'not a host name', 'two wildcards'],
  ['198.51.100.7', 'IP address', 'an address'],
  ['*.0.0.1', 'IP address', 'a wildcard of numbers'],
  ['[2001:db8::1]', 'IP address', 'IPv6'],
  ['2001:db8::1', 'IP address', 'IPv6 without brackets'],
  ['0x7f.1', 'IP address', 'an address in disguise'],
  ['m\u00fcnchen.example', 'xn--', 'IDN as text'],
  ['under_score.example', 'not a host name', 'an underscore'],
  ['^hf\\.co$', 'not a host name', 'a regular expression'],
]

void t.test('a pattern in a policy is canonical, or the message says the right spelling', (t) => {
  for (const [text, expected, why] of patterns) {
    const result = canonicalHostPattern(text)
    const got = result.ok ? 'ok' : result.message
    t.ok(got.includes(expected), `${JSON.stringify(text)}: ${why}: ${got}`)
  }
  const parsed = policySchema.safeParse({ version: 1, connect: { allow: ['HF.co'] } })
  t.match(parsed.error?.issues[0], { path: ['connect', 'allow', 0], message: /write "hf\.co"/ })
  t.end()
})
