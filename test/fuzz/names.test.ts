/** Names, addresses, paths and the heads of requests: what is accepted is canonical, and means the same to other readers. */
import net from 'node:net'
import t from 'tap'
import { auditPath, parseAbsoluteForm } from '../../daemon/egress/http-target.ts'
import { classifyAddress, isPublic } from '../../policy/address.ts'
import { explain } from '../../policy/explain.ts'
import { matchesFileGlob } from '../../policy/file-glob.ts'
import { canonicalHostPattern, parseAuthority, parseHost } from '../../policy/host.ts'
import { isRepoId, parseHubRequest, reservedOwners } from '../../policy/hugging-face-route.ts'
import { policySchema } from '../../policy/policy.ts'
import { allowedHost, closed, World } from '../daemon/egress/world.ts'
import { Mutator } from './mutator.ts'

const texts = (...list: readonly string[]): Buffer[] =>
  list.map((text) => Buffer.from(text, 'latin1'))

const authorities = texts(
  'huggingface.co:443',
  'a.b.c.hf.co.:80',
  'xn--mnchen-3ya.example:443',
  '198.51.100.7:443',
  '[2001:db8::7]:443',
  '0x7f.1:65535',
  'user@huggingface.co:443',
)

void t.test('an accepted authority is canonical, and a URL parser agrees with it', (t) => {
  const random = new Mutator(11)
  let accepted = 0
  for (let round = 0; round < 60_000; round += 1) {
    const text = random.spoil(authorities).toString('latin1')
    const first = parseAuthority(text)
    if (!first.ok) continue
    accepted += 1
    const { host, port } = first
    const spelt = `${host}:${port}`
    if (JSON.stringify(parseAuthority(spelt)) !== JSON.stringify(first))
      throw new Error(`not a fixed point: ${JSON.stringify(text)}`)
    if (text.toLowerCase().replace(/\.:/, ':') !== spelt) throw new Error(JSON.stringify(text))
    const url = URL.parse(`http://${spelt}/`)
    if (url?.hostname !== host || (url.port || '80') !== String(port))
      throw new Error(`${JSON.stringify(text)} is ${url?.host} to a URL parser`)
    if (net.isIP(host) !== 0) throw new Error(`an address: ${host}`)
  }
  t.ok(accepted > 1_000, `${accepted} accepted`)
  t.end()
})

void t.test('a pattern is canonical, or the spelling that its message gives is', (t) => {
  const random = new Mutator(12)
  const corpus = texts(
    '*.hf.co',
    'Docs.Example.com.',
    'https://x.example/a?b',
    '.x.example',
    '*x.example:443',
  )
  const ends = { right: 0, guessed: 0, refused: 0 }
  for (let round = 0; round < 40_000; round += 1) {
    const text = random.spoil(corpus).toString('latin1')
    const result = canonicalHostPattern(text)
    if (result.ok) {
      ends.right += 1
      if (!parseHost(text.replace(/^\*\./, '')).ok) throw new Error(JSON.stringify(text))
      continue
    }
    const guess = /: write "([^"]+)"$/.exec(result.message)?.[1]
    ends[guess === undefined ? 'refused' : 'guessed'] += 1
    if (guess !== undefined && !canonicalHostPattern(guess).ok)
      throw new Error(`"${guess}" for ${JSON.stringify(text)}`)
  }
  for (const [end, times] of Object.entries(ends)) t.ok(times > 100, `${end}: ${times}`)
  t.end()
})

void t.test('an address has one class in all its spellings, and hides none inside another', (t) => {
  const random = new Mutator(13)
  for (let round = 0; round < 20_000; round += 1) {
    const groups = Array.from({ length: 8 }, () =>
      random.int(0, 2) === 0 ? 0 : random.int(0, 0xffff),
    )
    if (random.int(0, 2) > 0)
      groups[0] = random.pick([0x2000, 0x2001, 0x2002, 0x2a00, 0x64, 0xfe80])
    const full = groups.map((group) => group.toString(16)).join(':')
    const padded = groups
      .map((group) => group.toString(16).padStart(4, '0').toUpperCase())
      .join(':')
    const short = new URL(`http://[${full}]/`).hostname.slice(1, -1)
    const tail = groups.slice(6).flatMap((group) => [group >> 8, group & 255])
    const dotted = `${groups
      .slice(0, 6)
      .map((group) => group.toString(16))
      .join(':')}:${tail.join('.')}`
    const kinds = [full, padded, short, dotted].map((text) => classifyAddress(text))
    if (new Set(kinds).size !== 1) throw new Error(`${full}: ${kinds.join(' ')}`)
    if (kinds[0] === 'public' && ((groups[0] ?? 0) & 0xe000) !== 0x2000) throw new Error(full)
    const four = tail.join('.')
    const [high, low] = groups.slice(6).map((group) => group.toString(16))
    const inside = [
      `::ffff:${four}`,
      `::${four}`,
      `64:ff9b::${four}`,
      `64:ff9b:1::${high}:${low}`,
      `2002:${high}:${low}::1`,
      `2001:0:${high}:${low}::`,
    ]
    for (const text of inside) if (isPublic(text)) throw new Error(`${four} inside ${text}`)
    if (classifyAddress(four) === 'invalid') throw new Error(four)
  }
  t.pass()
  t.end()
})

void t.test('spoilt text is an address for us only where it is one for the runtime', (t) => {
  const random = new Mutator(14)
  const corpus = texts(
    '198.51.100.7',
    '2001:db8::7',
    '::ffff:198.51.100.7',
    '64:ff9b::',
    'fe80::1%lo',
  )
  for (let round = 0; round < 40_000; round += 1) {
    const text = random.spoil(corpus).toString('latin1')
    const valid = net.isIP(text) !== 0 && !text.includes('%')
    if ((classifyAddress(text) !== 'invalid') !== valid) throw new Error(JSON.stringify(text))
  }
  t.pass()
  t.end()
})

void t.test('a pattern for files matches what its regular expression would', (t) => {
  const random = new Mutator(15)
  const expression = (glob: string): RegExp => {
    const parts = glob.split('/')
    const one = (part: string): string =>
      part.replace(/[*?]|[^*?]+/g, (piece) =>
        piece === '*' ? '[^/]*' : piece === '?' ? '[^/]' : RegExp.escape(piece),
      )
    if (parts.length === 1 && glob !== '**') return new RegExp(`(?:^|/)${one(glob)}$`)
    const source = parts.map((part, index) => {
      const last = index === parts.length - 1
      if (part !== '**') return `${one(part)}${last ? '' : '/'}`
      return last ? '(?:[^/]+/)*[^/]+' : '(?:[^/]+/)*'
    })
    return new RegExp(`^${source.join('')}$`)
  }
  for (let round = 0; round < 20_000; round += 1) {
    const part = (letters: string, most: number): string =>
      Array.from({ length: random.int(1, most) }, () => random.pick(letters.split(''))).join('')
    const globs = Array.from({ length: random.int(1, 4) }, () =>
      random.int(0, 3) === 0 ? '**' : part('ab*?', 3).replace(/\*\*+/g, '*'),
    )
    const path = Array.from({ length: random.int(1, 4) }, () => part('ab', 3)).join('/')
    const glob = globs.join('/')
    const expected = expression(glob).test(path)
    if (matchesFileGlob(glob, path) !== expected) throw new Error(`${glob} of ${path}: ${expected}`)
  }
  const began = performance.now()
  t.notOk(matchesFileGlob(`${'*a'.repeat(120)}b`, 'a'.repeat(4000)))
  t.notOk(matchesFileGlob(`${'**/a/'.repeat(50)}b`, `${'a/'.repeat(2000)}c`))
  t.ok(performance.now() - began < 2_000, 'no pattern makes it slow')
  t.end()
})

void t.test('no request to the Hub is taken for a file that its path does not name', (t) => {
  const random = new Mutator(16)
  const corpus = texts(
    '/acme/tiny/resolve/main/sub/config.json',
    '/api/models/acme/tiny/tree/main/sub?recursive=true',
    '/api/resolve-cache/models/acme/tiny/main/a.json',
    '/datasets/acme/tiny/resolve/main/a%2Fb.json',
    '/acme/tiny.git/info/refs?service=git-upload-pack',
    '/a/%2e%2e/resolve/..%2f../%5c/x',
  )
  let files = 0
  for (let round = 0; round < 40_000; round += 1) {
    const target = random.spoil(corpus).toString('latin1')
    const { route } = parseHubRequest(random.pick(['GET', 'HEAD', 'POST']), target)
    if (route.kind !== 'file') continue
    files += 1
    const parts = [...route.path.split('/'), ...route.revision.split('/')]
    // oxlint-disable-next-line no-control-regex
    const odd = /^\.{0,2}$|[\0-\x1f\\]/
    if (parts.some((part) => odd.test(part))) throw new Error(JSON.stringify(target))
    const owner = route.repo.split('/')[0] ?? ''
    if (reservedOwners.has(owner.toLowerCase()) && isRepoId(route.repo))
      throw new Error(`${route.repo} by ${JSON.stringify(target)}`)
  }
  t.ok(files > 500, `${files} files`)
  t.end()
})

void t.test('whatever a person asks to be explained is answered', (t) => {
  const random = new Mutator(17)
  const policy = policySchema.parse({
    version: 1,
    connect: { allow: ['huggingface.co', '*.hf.co'], ports: [80, 443] },
    huggingface: { repos: [{ repo: 'acme/tiny', revision: 'main' }] },
  })
  const corpus = texts(
    'https://huggingface.co/x',
    'CONNECT a.hf.co:443',
    'hf GET /acme/tiny/resolve/main/a.json',
    'model POST /v1/messages',
    'dns x.example',
    'PUT http://a.hf.co/',
  )
  const body = JSON.parse(
    '{"model":"m","__proto__":{"tools":[]},"messages":[{"role":"user"}]}',
  ) as unknown
  for (let round = 0; round < 20_000; round += 1) {
    const text = random.spoil(corpus).toString('latin1')
    const result = explain(policy, text, { body })
    const words = result.ok ? result.reason : result.message
    if (words === '') throw new Error(JSON.stringify(text))
  }
  t.pass()
  t.end()
})

void t.test('an absolute form keeps its path, and its record keeps no value of a query', (t) => {
  const random = new Mutator(18)
  const corpus = texts(
    'http://a.example/x?key=secret&b',
    'HTTP://u@a.example:80',
    'http://[::1]/#x',
    'http://a?b=secret',
  )
  for (let round = 0; round < 40_000; round += 1) {
    const url = random.spoil(corpus).toString('latin1')
    const target = parseAbsoluteForm(url)
    if (target === null) continue
    if (!target.path.startsWith('/') || /[/?#]/.test(target.authorityText))
      throw new Error(JSON.stringify(url))
    const shown = auditPath(
      `/p?${random.pick(['a', 'b'])}=secret&${target.path.replaceAll('=', '').replaceAll('secret', '')}`,
    )
    // oxlint-disable-next-line no-control-regex
    if (shown.includes('secret') || /[^\x20-\x7e]/.test(shown) || shown.length > 900)
      throw new Error(JSON.stringify(url))
  }
  t.pass()
  t.end()
})

void t.test('no spoilt head of a request reaches another host, or goes unrecorded', async (t) => {
  await using world = await World.open({
    limits: { headersTimeoutMs: 300, helloTimeoutMs: 300, idleTimeoutMs: 200, concurrent: 200 },
  })
  const random = new Mutator(19)
  const head = (line: string, ...headers: readonly string[]): string =>
    [`${line} HTTP/1.1`, `Host: ${allowedHost}`, ...headers, 'Connection: close', '', ''].join(
      '\r\n',
    )
  const corpus = texts(
    head(`GET http://${allowedHost}/a?b=c`),
    `${head(`POST http://${allowedHost}/`, 'Content-Length: 3')}abc`,
    `${head(`POST http://${allowedHost}/`, 'Transfer-Encoding: chunked')}3\r\nabc\r\n0\r\n\r\n`,
    `${head(`PUT http://${allowedHost}/`, 'Expect: 100-continue', 'Content-Length: 1')}x`,
    head(`CONNECT ${allowedHost}:80`) + head('GET /in'),
    head('GET http://evil.example/'),
    head(`GET http://${allowedHost}/`, 'Upgrade: websocket'),
  )
  const rounds = 300
  for (let round = 0; round < rounds; round += 100) {
    const heads = Array.from({ length: 100 }, () => random.spoil(corpus, 2)).filter(
      ({ length }) => length > 0,
    )
    await Promise.all(
      heads.map(async (bytes) => {
        const socket = net.connect({ port: world.ports.proxy, host: '127.0.0.1' })
        socket.on('error', () => undefined).resume()
        socket.write(bytes)
        await closed(socket)
      }),
    )
  }
  t.strictSame(world.faults, [])
  t.ok(world.requests.length > 10, `${world.requests.length} reached the origin`)
  for (const { rawHeaders } of world.requests) {
    const hosts = rawHeaders.filter((_, index) => rawHeaders[index - 1]?.toLowerCase() === 'host')
    if (hosts.length !== 1 || hosts[0] !== allowedHost) t.fail(`Host ${hosts.join(' ')}`)
  }
  t.ok(
    world.resolved.every((name) => name === allowedHost),
    'no other name was looked up',
  )
  const events = await world.events()
  const allowed = events.filter(({ kind, action }) => kind === 'decision' && action === 'allow')
  t.ok(allowed.length >= world.requests.length, 'each of them by a decision')
  t.ok(events.length > rounds / 2, 'and those that were refused are recorded')
})
