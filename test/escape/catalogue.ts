/**
 * The catalogue of ways out, as data: each attempt with the client that makes it, what it must see, and what the audit
 * must have of it. docs/threat-model.md has its table from here (table.ts); catalogue.test.ts makes every attempt.
 */
import { directAttempts } from './rows-direct.ts'
import { gatewayAttempts } from './rows-gateways.ts'
import { insideAttempts } from './rows-inside.ts'
import { nameAttempts } from './rows-names.ts'
import { proxyAttempts } from './rows-proxy.ts'

export type Client =
  | 'curl'
  | 'wget'
  | 'git'
  | 'openssl'
  | 'perl'
  | 'sh'
  | 'python raw'
  | 'python urllib'
  | 'python requests'
  | 'python httpx'
  | 'python openai'
  | 'huggingface_hub'

/**
 * `open`: an allowed host, gateways for a model and the Hub; allowed names may lead anywhere. `strict`: the same names
 * allowed, and addresses vetted as in use. `other`: the harness image, another model's key, another pinned repository.
 */
export type Sandbox = 'open' | 'strict' | 'other'

/** What the test knows when it runs. */
export interface Facts {
  /** Addresses of the host that the daemon runs on, and of the one that the engine runs on, with a port served there. */
  readonly hostAddresses: readonly string[]
  readonly hostPort: number
  /** Of the artifact that is pinned in `open`. */
  readonly commit: string
  /** In names and paths, so that nothing else can be taken for this run's. */
  readonly nonce: string
}

export interface Attempt {
  readonly row: number
  readonly what: string
  readonly client: Client
  /** For the shell (`sh`), or an expression over the functions of clients.py. */
  readonly run: { readonly sh: string } | { readonly py: string }
  readonly seen: RegExp
  /**
   * Events, as `protocol reason target`, each once; `12x …`: so often; `+ …`: at least once. The target is the name or the
   * address, and the port. Empty: the kernel or the grammar of the request ends it before there is anything to record.
   */
  readonly audit: readonly string[]
  /** Requests that reach the outside, as they should. */
  readonly reaches?: readonly string[]
  readonly in?: Sandbox
  /** Default: both. */
  readonly as?: 'root' | 'user'
  /** Takes seconds by nature: begun first. */
  readonly slow?: true
}

/** What is done by the test itself rather than by a program in a sandbox, and what can't be done here. */
export interface OtherRow {
  readonly row: number
  readonly what: string
  readonly how: string
  readonly result: string
}

export const techniques: ReadonlyMap<number, string> = new Map([
  [1, 'direct TCP to a public address'],
  [2, 'direct TCP, odd ports'],
  [3, 'a program that ignores proxy settings'],
  [4, 'proxy settings taken away'],
  [5, '`NO_PROXY=*`'],
  [6, 'DNS as a tunnel, by the system resolver'],
  [7, 'DNS to a public resolver'],
  [8, 'DNS over TLS, DNS over HTTPS'],
  [9, 'DNS as a tunnel, by our own proxy'],
  [10, 'multicast and broadcast'],
  [11, 'host services at the bridge'],
  [12, 'host services at any other address'],
  [13, 'names of the host'],
  [14, "the engine's API"],
  [15, 'cloud metadata'],
  [16, 'an allowed name that leads inside'],
  [17, 'DNS rebinding'],
  [19, 'IPv6'],
  [20, 'IPv4 inside IPv6 literals'],
  [21, 'octal, hexadecimal, decimal, short IPv4'],
  [23, 'UDP, QUIC, HTTP/3'],
  [24, 'raw and packet sockets'],
  [26, 'CONNECT to an allowed host, another SNI'],
  [27, 'CONNECT to an allowed host, no SNI or no TLS'],
  [28, 'Encrypted ClientHello'],
  [29, 'ClientHello in pieces'],
  [30, 'ClientHello that never completes, or is too long'],
  [31, 'right SNI, another Host inside TLS'],
  [33, 'Host header against the absolute form'],
  [34, 'Host header against CONNECT'],
  [35, 'two Host headers'],
  [36, 'no Host, strange Expect'],
  [37, 'request smuggling'],
  [39, 'a second request on an allowed connection'],
  [40, 'early bytes after CONNECT'],
  [41, 'upgrades'],
  [43, 'SOCKS, TLS, HTTP/2 to the proxy'],
  [44, 'allowed host, another port'],
  [45, 'look-alikes by suffix and prefix'],
  [46, 'trailing dot, upper case'],
  [47, 'names that only look ASCII'],
  [48, 'userinfo, escapes, fragments in the target'],
  [49, 'a zone id that carries the allowed name'],
  [50, 'redirects'],
  [51, 'Spaces'],
  [52, 'repositories that mirror code'],
  [53, 'hosted inference'],
  [54, 'jobs'],
  [55, 'pushes and uploads to the Hub'],
  [56, 'everything else of the Hub'],
  [58, 'query and headers as a channel'],
  [59, "the provider's own tools"],
  [60, 'what the provider would fetch'],
  [61, 'state and execution at the provider'],
  [64, "the provider's key"],
  [65, "another sandbox's credentials"],
  [66, 'from sandbox to sandbox'],
  [67, 'shared files as a channel'],
  [68, 'cache poisoning and probing'],
  [69, '`/etc/hosts` rewritten'],
  [70, 'ports of the listeners taken by the agent'],
  [71, 'abstract unix sockets'],
  [72, 'tricks in mounted directories'],
  [73, 'slow loris, many tunnels'],
  [75, 'audit flood, audit full'],
  [76, 'policy reload under a live tunnel'],
  [77, 'the daemon is killed'],
  [78, 'resolver or upstream hangs'],
  [79, 'strange methods'],
  [82, 'building and pulling images'],
  [83, 'a specification that opens the sandbox'],
])

export const attempts = (facts: Facts): readonly Attempt[] => [
  ...directAttempts(facts),
  ...nameAttempts(facts),
  ...proxyAttempts(facts),
  ...gatewayAttempts(facts),
  ...insideAttempts(facts),
]

export const otherRows: readonly OtherRow[] = [
  {
    row: 68,
    what: 'bytes that are not the pinned ones come from the file host',
    how: 'test',
    result: 'refused, `upstream_bad`; the next reader gets the right ones',
  },
  {
    row: 73,
    what: '2,000 tunnels, 500 slow requests, 10 GB, beside a neighbour',
    how: 'bench',
    result: 'what a neighbour feels of it: figures in benchmarks.md',
  },
  {
    row: 75,
    what: 'the log of a sandbox reaches its limit',
    how: 'test',
    result: 'the sandbox is closed',
  },
  {
    row: 76,
    what: 'a policy is changed while a tunnel lives',
    how: 'not run',
    result:
      "a sandbox's policy can't be changed: it is fixed when the lease opens, and its hash is in every event",
  },
  {
    row: 77,
    what: 'SIGKILL for the daemon, attempts meanwhile, and its return',
    how: 'test',
    result: 'refused by the kernel; the numbers of the log go on without a gap',
  },
  {
    row: 83,
    what: 'a lease with host network, privileges, host pids, devices, the engine socket',
    how: 'test',
    result: 'refused before anything starts',
  },
]
