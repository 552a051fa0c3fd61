/** Programs as they are, unchanged, against a closed sandbox: each gives up at once, and each attempt has its event. */
import t from 'tap'
import { eventLine, SandboxWorld } from '../e2e/sandbox/setup.ts'

const world = await SandboxWorld.open()
t.teardown(() => world[Symbol.asyncDispose]())
const lease = await world.lease()
const proxy = {
  http_proxy: 'http://127.0.0.1:3128',
  https_proxy: 'http://127.0.0.1:3128',
}
const aiohttp = `
import asyncio, aiohttp
async def go():
    async with aiohttp.ClientSession() as session: await session.get('https://198.51.100.7:8443/')
asyncio.run(go())
`
const perl =
  // now and then a connection stands for a moment before it is reset: what counts is that no byte comes
  'my $s = IO::Socket::INET->new(PeerAddr => "198.51.100.7:25", Timeout => 3) or print("no: $@"), exit; ' +
  'print sysread($s, my $b, 1) ? "up" : "no: reset"'
const requests = (url: string): string[] => [
  'python3',
  '-c',
  `import requests; requests.get("${url}")`,
]
const curl = (...args: string[]): string[] => ['curl', '-sS', ...args]
const dns = (host: string): string => `decision dns ${host} - 53 deny dns_query x1`
const connect = (host: string): string => `decision connect ${host} - 443 deny not_allowed_host x1`
const tls = (host: string, reason: string): string =>
  `decision tls ${host} 198.51.100.7 443 deny ${reason} x1`
const direct = (port: number): string => `census tcp - 198.51.100.7 ${port} deny direct_tcp x1`

const rows: readonly (readonly [
  argv: string[],
  env: Readonly<Record<string, string>>,
  said: RegExp,
  /** Each at least once, and no other. */
  events: readonly string[],
])[] = [
  [
    ['pip', 'download', '--retries', '0', '--index-url', 'https://index.example/simple', 'six'],
    {},
    /No matching distribution/,
    [dns('index.example')],
  ],
  [
    ['pip', 'download', '--retries', '0', '--index-url', 'https://index.example/simple', 'six'],
    proxy,
    /403 Forbidden|No matching/,
    [connect('index.example')],
  ],
  [['git', 'clone', 'https://git.example/a'], {}, /not resolve host/, [dns('git.example')]],
  [['git', 'clone', 'https://git.example/a'], proxy, /response 403/, [connect('git.example')]],
  [['git', 'clone', 'git://198.51.100.7/a'], {}, /refused|reset/, [direct(9418)]],
  [
    ['git', 'ls-remote', 'http://198.51.100.7/a'],
    {},
    /no direct way out of this sandbox/,
    ['decision http 198.51.100.7 198.51.100.7 80 deny direct_tcp x1'],
  ],
  [requests('https://api.example/v1'), proxy, /403 Forbidden/, [connect('api.example')]],
  [requests('https://198.51.100.7/v1'), {}, /ACCESS_DENIED/, [tls('-', 'direct_tcp')]],
  [['python3', '-c', aiohttp], {}, /Cannot connect/, [direct(8443)]],
  [['perl', '-MIO::Socket::INET', '-e', perl], {}, /no: .*(refused|reset)/, [direct(25)]],
  [
    ['openssl', 's_client', '-connect', '198.51.100.7:443', '-servername', 'evil.example'],
    {},
    /access denied/,
    [tls('evil.example', 'not_allowed_host')],
  ],
  [
    ['openssl', 's_client', '-proxy', '127.0.0.1:3128', '-connect', 'evil.example:443'],
    {},
    /403 Forbidden/,
    [connect('evil.example')],
  ],
  [
    ['bash', '-c', 'exec 3<>/dev/tcp/198.51.100.7/443 && echo hi >&3 && cat <&3 | od -c'],
    {},
    /025 003 003/,
    [tls('-', 'direct_tcp')],
  ],
  [
    curl('--http3-only', 'https://198.51.100.7/'),
    {},
    /not permitted|option.*http3|libcurl/,
    ['census udp - 198.51.100.7 443 deny direct_udp x1'],
  ],
  [curl('telnet://198.51.100.7:23'), {}, /connect|reset/i, [direct(23)]],
  [curl('ftp://198.51.100.7/'), {}, /connect|reset/i, [direct(21)]],
  [
    curl('--socks5', '198.51.100.7:1080', 'https://a.example/'),
    {},
    /connect|reset/i,
    [direct(1080)],
  ],
  [
    curl('--doh-url', 'https://198.51.100.7/dns-query', 'https://a.example/'),
    {},
    /not resolve/,
    [tls('-', 'direct_tcp')],
  ],
  [
    curl('--resolve', 'a.example:443:198.51.100.7', 'https://a.example/'),
    {},
    /access denied/,
    [tls('a.example', 'not_allowed_host')],
  ],
  [curl('--unix-socket', '/var/run/docker.sock', 'http://engine/'), {}, /Could not connect/, []],
]

let seen = 0
for (const [argv, env, said, events] of rows)
  void t.test(
    `${argv.join(' ').replaceAll('\n', ' ').slice(0, 90)}${env === proxy ? ' by the proxy' : ''}`,
    async (t) => {
      const { output, end } = await world.run(lease, argv, {
        env,
        workdir: '/tmp',
        timeoutMs: 20_000,
      })
      t.match(output, said)
      t.equal(end.cause, 'exited')
      const all = await world.audit(lease)
      const lines = all
        .slice(seen)
        .map((event) => eventLine({ ...event, detail: undefined } as typeof event))
      seen = all.length
      t.strictSame([...new Set(lines)].toSorted(), [...events].toSorted())
    },
  )
