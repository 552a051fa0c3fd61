/** Every way out that we know, tried from inside a sandbox as root and as a user: refused at once, and recorded once. */
import { readFile } from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import t from 'tap'
import { eventLine, SandboxWorld } from '../e2e/sandbox/setup.ts'

const world = await SandboxWorld.open()
t.teardown(() => world[Symbol.asyncDispose]())
const lease = await world.lease()
const program = await readFile(new URL('attempts.py', import.meta.url), 'utf8')

/** What the attempt meets, by errno or words; and the event that it leaves, or null where the kernel refuses before. */
type Row = readonly [name: string, seen: RegExp, events: readonly string[] | null]

const noEvent = null
const dns = (host: string, address: string, detail: string): string =>
  `decision dns ${host} ${address} 53 deny dns_query x1 ${detail}`
const census = (protocol: string, address: string, port: number | '-', reason: string): string =>
  `census ${protocol} - ${address} ${port} deny ${reason} x1`

const rows = (nonce: string): readonly Row[] => [
  ['curl', /access denied/, ['decision tls - 198.51.100.7 443 deny direct_tcp x1 no server name']],
  [
    'curl no proxy',
    /reset by peer|Could not connect/,
    [census('tcp', '198.51.100.7', 8080, 'direct_tcp')],
  ],
  [
    'curl name',
    /not resolve host/,
    [dns(`curl.${nonce}.example`, '-', 'A'), dns(`curl.${nonce}.example`, '-', 'AAAA')],
  ],
  ['git clone', /reset by peer|refused/, [census('tcp', '198.51.100.7', 9418, 'direct_tcp')]],
  [
    'metadata 80',
    /HTTP\/1\.1 4/,
    ['decision http x 169.254.169.254 80 deny bad_authority x1 GET /latest/'],
  ],
  [
    'metadata 8080',
    /ECONNREFUSED|ECONNRESET|empty/,
    [census('tcp', '169.254.169.254', 8080, 'direct_tcp')],
  ],
  ['ssh', /ECONNREFUSED|ECONNRESET|empty/, [census('tcp', '198.51.100.22', 22, 'direct_tcp')]],
  [
    'https without a word',
    /x15/,
    [
      'decision tls - 198.51.100.43 443 deny direct_tcp x1 not_tls: first bytes 5353482d322e302d780d0a',
    ],
  ],
  [
    'http',
    /HTTP\/1\.1 403/,
    ['decision http a.example 198.51.100.80 80 deny not_allowed_host x1 GET /'],
  ],
  [
    "tripwire's own port",
    /ECONNREFUSED|ECONNRESET|empty/,
    [census('tcp', '198.51.100.61', 61999, 'direct_tcp')],
  ],
  [
    "proxy's port elsewhere",
    /ECONNREFUSED|ECONNRESET|empty/,
    [census('tcp', '198.51.100.31', 3128, 'direct_tcp')],
  ],
  [
    'dns over tls',
    /ECONNREFUSED|ECONNRESET|empty/,
    [census('tcp', '198.51.100.85', 853, 'direct_tcp')],
  ],
  [
    'engine over tcp',
    /ECONNREFUSED|ECONNRESET|empty/,
    [census('tcp', '172.17.0.1', 2375, 'direct_tcp')],
  ],
  ['udp', /EPERM/, [census('udp', '198.51.100.8', 4433, 'direct_udp')]],
  ['quic', /EPERM/, [census('udp', '198.51.100.8', 443, 'direct_udp')]],
  ['mdns', /EPERM/, [census('udp', '224.0.0.251', 5353, 'direct_udp')]],
  ['broadcast', /EPERM/, [census('udp', '255.255.255.255', 67, 'direct_udp')]],
  [
    'system resolver',
    /no such name/,
    [dns(`system.${nonce}.example`, '-', 'A'), dns(`system.${nonce}.example`, '-', 'AAAA')],
  ],
  ['dns query', /code 3 from 198\.51\.100\.53/, [dns(`udp.${nonce}.example`, '-', 'A')]],
  ['dns query over tcp', /code 3/, [dns(`tcp.${nonce}.example`, '198.51.100.54', 'A')]],
  ['ping', /EPERM/, [census('icmp', '198.51.100.7', '-', 'direct_icmp')]],
  ['udp-lite', /EPERM/, [census('other', '198.51.100.7', '-', 'direct_other')]],
  [
    'ipv6 mapped',
    /ECONNREFUSED|ECONNRESET|empty/,
    [census('tcp', '198.51.100.66', 7000, 'direct_tcp')],
  ],
  ['sctp', /EPROTONOSUPPORT|EPERM|ECONN/, noEvent],
  ['dccp', /ESOCKTNOSUPPORT|EPERM|ECONN/, noEvent],
  ['raw icmp', /EPERM/, noEvent],
  ['raw ip', /EPERM/, noEvent],
  ['packet', /EPERM/, noEvent],
  ['vsock', /EPERM/, noEvent],
  ['bluetooth', /EPERM/, noEvent],
  ['crypto', /EPERM/, noEvent],
  ['netlink netfilter', /EPERM/, noEvent],
  ['netlink audit', /EPERM/, noEvent],
  ['so_mark', /EPERM/, noEvent],
  ['ip_transparent', /EPERM/, noEvent],
  ['io_uring', /EPERM/, noEvent],
  ['bpf', /EPERM/, noEvent],
  ['user namespace', /EPERM/, noEvent],
  ['network namespace', /EPERM/, noEvent],
  ['setns', /EPERM/, noEvent],
  ['mount', /EPERM/, noEvent],
  ['ptrace of pid 1', /EPERM/, noEvent],
  ['kill pid 1', /EPERM/, noEvent],
  ['memory of pid 1', /EACCES/, noEvent],
  ['sacrifice pid 1', /EACCES/, noEvent],
  ['ipv6', /EADDRNOTAVAIL|ENETUNREACH/, noEvent],
  ['ipv6 link local', /EINVAL|ENETUNREACH|EADDRNOTAVAIL/, noEvent],
  ['engine socket', /absent/, noEvent],
  ['abstract socket', /ECONNREFUSED/, noEvent],
]

for (const user of ['root', '1000'])
  void t.test(
    `as ${user} nothing gets out, all within a second, each attempt recorded once`,
    async (t) => {
      const nonce = `n${crypto.randomUUID().slice(0, 8)}`
      const before = (await world.audit(lease)).length
      const results = (await world.python(lease, program, [nonce], { user })) as Record<
        string,
        { seen: string; ms: number }
      >
      const expected: string[] = []
      for (const [name, seen, events] of rows(nonce)) {
        const result = results[name]
        t.match(result?.seen, seen, name)
        t.ok((result?.ms ?? Infinity) < 1000, `${name} took ${result?.ms} ms`)
        expected.push(...(events ?? []))
      }
      t.equal(Object.keys(results).length, rows(nonce).length, 'every attempt has its row')
      const lines = (await world.audit(lease)).slice(before).map(eventLine)
      t.strictSame(lines.toSorted(), expected.toSorted())
    },
  )

void t.test('a server in the sandbox works by every name that it has', async (t) => {
  const answers = await world.python(
    lease,
    `
import http.server, json, socket, threading, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'hello from ' + self.path.encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(('0.0.0.0', 30000), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
get = lambda host: urllib.request.urlopen(f'http://{host}:30000/{host}', timeout=5).read().decode()
print(json.dumps([get(host) for host in ('127.0.0.1', 'localhost', socket.gethostname())]))
`,
  )
  t.strictSame(answers, ['hello from /127.0.0.1', 'hello from /localhost', 'hello from /sandbox'])
})

void t.test("the host's own ports can't be reached by any of its addresses", async (t) => {
  let arrived = 0
  const server = net.createServer((socket) => {
    arrived += 1
    socket.end()
  })
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve))
  t.teardown(() => server.close())
  const { port } = server.address() as net.AddressInfo
  const addresses = Object.values(os.networkInterfaces())
    .flatMap((each) => each ?? [])
    .filter(({ family }) => family === 'IPv4')
    .map(({ address }) => address)
  for (const address of addresses)
    await new Promise<void>((resolve, reject) => {
      const socket = net.connect(port, address)
      socket.once('error', reject)
      socket.resume().once('close', () => resolve())
    })
  t.equal(arrived, addresses.length, 'from the host every address leads to the listener')
  const words = (await world.python(
    lease,
    `
import json, socket, sys
def attempt(address):
    with socket.socket() as s:
        s.settimeout(3)
        try:
            s.connect((address, int(sys.argv[1]))); return 'empty' if s.recv(1) == b'' else 'answered'
        except OSError as error: return type(error).__name__
print(json.dumps({address: attempt(address) for address in sys.argv[2:]}))
`,
    [String(port), ...addresses, 'host.docker.internal', 'gateway.docker.internal'],
  )) as Record<string, string>
  t.equal(arrived, addresses.length, 'and from the sandbox none does')
  for (const [address, word] of Object.entries(words))
    t.match(word, /Connection(Refused|Reset)Error|empty|gaierror/, address)
})
