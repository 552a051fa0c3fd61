/**
 * A program in a network namespace of the test's own, which records what arrives there. As `outside` it is the whole
 * internet: every address is its own, with a web, a resolver, a model provider, and on all other ports something that
 * answers. As `host` it is the host that the daemon runs on, with services on each of its addresses, and the Hub.
 * The kernel counts what arrives before anything else sees it. Started by world.ts; speaks JSON over IPC.
 */
import { execFile } from 'node:child_process'
import dgram from 'node:dgram'
import { once } from 'node:events'
import http from 'node:http'
import net from 'node:net'
import tls from 'node:tls'
import { promisify } from 'node:util'
import { StandInHub, type Trouble } from '../support/hub.ts'

const run = promisify(execFile)

/** What reached one of the two sides. */
export interface Seen {
  /** `tcp 198.51.100.7:22`, by the kernel, and how often. */
  readonly packets: Readonly<Record<string, number>>
  /** `https web.example /path`, as the Host header has it. */
  readonly requests: readonly string[]
  /** Headers, bodies and queries of everything, to be searched. */
  readonly text: string
  /** Connections to a listener here that brought a byte. */
  readonly spoken: number
  readonly names: readonly string[]
}

export interface Facts {
  readonly hub: { readonly endpoint: string; readonly fileHost: string }
  readonly commits: Readonly<Record<string, string>>
}

export type Ask =
  | {
      readonly do: 'open'
      readonly as: 'outside' | 'host'
      readonly key: string
      readonly cert: string
    }
  | { readonly do: 'seen' }
  | { readonly do: 'trouble'; readonly trouble: Trouble }

const requests: string[] = []
const names: string[] = []
let text = ''
let spoken = 0
let hub: StandInHub | null = null

const noteConnection = (socket: net.Socket): void => {
  socket.on('error', () => {})
  socket.once('close', () => {
    if (socket.bytesRead > 0) spoken += 1
  })
}

const completion = JSON.stringify({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'm-1',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'yes' } }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
})

function answer(request: http.IncomingMessage, response: http.ServerResponse): void {
  const { url = '', headers, method } = request
  const scheme = request.socket instanceof tls.TLSSocket ? 'https' : 'http'
  requests.push(`${scheme} ${headers.host ?? '-'} ${url}`)
  text += `${method} ${url} ${JSON.stringify(headers)}\n`
  request.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')))
  request.on('end', () => {
    if (url.startsWith('/redirect'))
      response.writeHead(302, { location: 'http://evil.example/from-redirect' }).end()
    else if (url.startsWith('/v1/'))
      response.writeHead(200, { 'content-type': 'application/json' }).end(completion)
    else response.writeHead(200, { 'content-type': 'text/plain' }).end('this is the outside\n')
  })
}

async function serveWeb(key: string, cert: string): Promise<void> {
  const web = http.createServer(answer)
  const secure = tls.createServer({ key, cert }, (socket) => web.emit('connection', socket))
  secure.on('tlsClientError', () => {})
  const plain = net.createServer((socket) => {
    noteConnection(socket)
    web.emit('connection', socket)
  })
  const sealed = net.createServer((socket) => {
    noteConnection(socket)
    secure.emit('connection', socket)
  })
  const any = net.createServer((socket) => {
    noteConnection(socket)
    socket.end('this is the outside\n')
  })
  const listening = [
    [plain, 80],
    [sealed, 443],
    [any, 9],
  ] as const
  for (const [server, port] of listening) await once(server.listen(port, '::'), 'listening')
}

/** Addresses behind names; a name that isn't here has the address of somebody evil. */
const zone: Readonly<Record<string, readonly string[]>> = {
  'web.example': ['198.51.100.80'],
  'real.wild.example': ['198.51.100.80'],
  'hole.example': ['198.51.100.9'],
  'meta.example': ['169.254.169.254'],
  'loop.example': ['127.0.0.1'],
  'bridge.example': ['172.17.0.1'],
  'lan.example': ['192.168.77.5'],
  'shared.example': ['100.64.0.1'],
  'mixed.example': ['198.51.100.80', '10.0.0.1'],
  'mapped.example': ['::ffff:127.0.0.1'],
  'nat64.example': ['64:ff9b::7f00:1'],
  'six.example': ['2002:7f00:1::'],
  'unique.example': ['fd00:ec2::254'],
}
let flips = 0

function addressesOf(name: string): readonly string[] {
  if (name !== 'flip.example') return zone[name] ?? ['198.51.100.66']
  flips += 1
  return flips === 1 ? ['198.51.100.80'] : ['172.17.0.1']
}

function ipv6Bytes(address: string): Buffer {
  const [head = '', tail = ''] = address
    .replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_, ...parts) => {
      const [a = 0, b = 0, c = 0, d = 0] = parts.slice(0, 4).map(Number)
      return `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`
    })
    .split('::')
  const words = (part: string): string[] => (part === '' ? [] : part.split(':'))
  const zeros = Array<string>(8 - words(head).length - words(tail).length).fill('0')
  const all = [...words(head), ...zeros, ...words(tail)]
  return Buffer.from(all.map((word) => word.padStart(4, '0')).join(''), 'hex')
}

function dnsAnswer(message: Buffer): Buffer | null {
  let at = 12
  const labels: string[] = []
  for (let length = message[at] ?? 0; length > 0; length = message[at] ?? 0) {
    labels.push(message.toString('latin1', at + 1, at + 1 + length))
    at += length + 1
  }
  const type = message.readUInt16BE(at + 1)
  const name = labels.join('.').toLowerCase()
  names.push(name)
  if (name === 'hang.example') return null
  const wanted = type === 28 || type === 1
  const four = type === 1
  const found = wanted ? addressesOf(name).filter((one) => four === !one.includes(':')) : []
  const records = found.map((address) => {
    const data = four ? Buffer.from(address.split('.').map(Number)) : ipv6Bytes(address)
    const head = Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 0, 0, data.length])
    return Buffer.concat([head, data])
  })
  const head = Buffer.from(message.subarray(0, 12))
  head.writeUInt16BE(0x8180, 2)
  head.writeUInt16BE(found.length, 6)
  head.writeUInt32BE(0, 8)
  return Buffer.concat([head, message.subarray(12, at + 5), ...records])
}

async function serveNames(address: string): Promise<void> {
  const socket = dgram.createSocket('udp4')
  socket.on('message', (message, from) => {
    const reply = dnsAnswer(message)
    if (reply !== null) socket.send(reply, from.port, from.address)
  })
  socket.bind(53, address)
  await once(socket, 'listening')
}

const shell = (script: string): Promise<unknown> => run('sh', ['-ec', script])

/** Counts by address and port of what comes in; `but` is what the test itself does here. */
const counting = (iif: string, but: string): string => `
table inet seen {
  set tcp4 { type ipv4_addr . inet_service; size 65536; flags dynamic; counter; }
  set tcp6 { type ipv6_addr . inet_service; size 65536; flags dynamic; counter; }
  set udp4 { type ipv4_addr . inet_service; size 65536; flags dynamic; counter; }
  set udp6 { type ipv6_addr . inet_service; size 65536; flags dynamic; counter; }
  set other { type ipv4_addr . inet_proto; size 65536; flags dynamic; counter; }
  chain arriving {
    type filter hook prerouting priority -300; policy accept;
    iif != "${iif}" return
    ${but}
    tcp flags & (syn | ack) == syn update @tcp4 { ip daddr . tcp dport }
    tcp flags & (syn | ack) == syn update @tcp6 { ip6 daddr . tcp dport }
    udp dport 0-65535 update @udp4 { ip daddr . udp dport }
    udp dport 0-65535 update @udp6 { ip6 daddr . udp dport }
    ip protocol != { tcp, udp } update @other { ip daddr . ip protocol }
    ip daddr 198.51.100.9 drop
  }
  chain any {
    type nat hook prerouting priority -100; policy accept;
    iif "${iif}" tcp dport != { 9, 53, 80, 443 } redirect to :9
  }
}`

async function load(rules: string): Promise<void> {
  const child = execFile('nft', ['-f', '-'])
  child.stdin?.end(rules)
  const [code] = (await once(child, 'exit')) as [number]
  if (code !== 0) throw new Error('nft refused the rules of the recorder')
}

async function openOutside(key: string, cert: string): Promise<void> {
  await shell(`
    ip link set lo up
    ip addr add 203.0.113.2/24 dev out0; ip -6 addr add 2001:db8:1::2/64 dev out0 nodad; ip link set out0 up
    ip addr add 198.51.100.53/32 dev lo
    ip rule add pref 50 to 203.0.113.1 lookup main; ip rule add pref 60 lookup local; ip rule del pref 0
    ip route add local 0.0.0.0/0 dev lo
    ip -6 rule add iif out0 lookup 100; ip -6 route add local ::/0 dev lo table 100`)
  await load(counting('out0', 'meta l4proto ipv6-icmp return'))
  await serveWeb(key, cert)
  await serveNames('198.51.100.53')
}

async function openHost(key: string, cert: string): Promise<Facts> {
  await shell(`
    ip link set lo up
    ip addr add 203.0.113.1/24 dev up0; ip -6 addr add 2001:db8:1::1/64 dev up0 nodad; ip link set up0 up
    ip route add default via 203.0.113.2; ip -6 route add default via 2001:db8:1::2
    ip link add docker0 type veth peer name docker0p; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up
    ip link add lan0 type veth peer name lan0p; ip addr add 192.168.77.5/24 dev lan0; ip -6 addr add fd77::5/64 dev lan0 nodad; ip link set lan0 up`)
  hub = await StandInHub.open()
  const files = { 'config.json': '{}\n', 'model.safetensors': 'x'.repeat(5000), 'code.py': 'no' }
  const commits = Object.fromEntries(
    ['acme/tiny', 'acme/other'].map((repo) => [repo, hub?.add(repo, { ...files, repo }) ?? '']),
  )
  const own = [hub.endpoint, hub.fileHost].map((url) => url.split(':').at(-1)).join(', ')
  await load(counting('lo', `tcp dport { ${own} } return\n    tcp sport { ${own} } return`))
  await serveWeb(key, cert)
  return { hub: { endpoint: hub.endpoint, fileHost: hub.fileHost }, commits }
}

interface NftElement {
  readonly elem: {
    readonly val: { readonly concat: readonly (string | number)[] }
    readonly counter: { readonly packets: number }
  }
}

async function seen(): Promise<Seen> {
  const { stdout } = await run('nft', ['-j', 'list', 'sets'], { maxBuffer: 2 ** 26 })
  const { nftables } = JSON.parse(stdout) as {
    nftables: { set?: { name: string; elem?: NftElement[] } }[]
  }
  const packets: Record<string, number> = {}
  for (const { set } of nftables)
    for (const { elem } of set?.elem ?? [])
      packets[`${set?.name.replace(/\d/, '')} ${elem.val.concat.join(':')}`] = elem.counter.packets
  const upstream = [...(hub?.requests ?? []), ...(hub?.fileRequests ?? [])]
  return {
    packets,
    requests: [...requests, ...upstream.map(({ method, url }) => `hub ${method} ${url}`)],
    text: text + upstream.map((one) => JSON.stringify(one)).join('\n'),
    spoken,
    names,
  }
}

async function obey(ask: Ask): Promise<unknown> {
  switch (ask.do) {
    case 'open':
      return ask.as === 'outside' ? openOutside(ask.key, ask.cert) : openHost(ask.key, ask.cert)
    case 'seen':
      return seen()
    case 'trouble':
      hub?.troubles.push(ask.trouble)
      return null
    default:
      return ask satisfies never
  }
}

process.on('message', (ask: Ask) => {
  obey(ask).then(
    (value) => process.send?.({ value: value ?? null }),
    (error: unknown) => process.send?.({ error: String(error) }),
  )
})
process.once('disconnect', () => process.exit())
process.send?.({ value: 'here' })
