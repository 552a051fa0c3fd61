/** Rows 1 to 24 and 66: programs that don't ask the proxy. */
import type { Attempt, Facts } from './catalogue.ts'

/** How a refusal of the kernel, or of our tripwire, looks. */
const refused = /ECONNREFUSED|ECONNRESET|reset|closed|refused|could not connect/i
const blocked = /EPERM/
const alert = /alert 49|access denied/
const list = (targets: readonly (readonly [string, number])[]): string =>
  targets.map(([address, port]) => `("${address}", ${port})`).join(', ')

export function directAttempts({ hostAddresses, hostPort, nonce }: Facts): readonly Attempt[] {
  const hosts = hostAddresses.map((address) => [address, hostPort] as const)
  const bridge = hosts.filter(([address]) => address.startsWith('172.17.'))
  const rest = hosts.filter(([address]) => !address.startsWith('172.17.'))
  const census = (targets: typeof hosts): string[] =>
    targets.map(([address, port]) => `tcp direct_tcp ${address}:${port}`)
  return [
    {
      row: 1,
      what: 'HTTPS to an address',
      client: 'curl',
      run: { sh: "curl -sS --noproxy '*' https://198.51.100.7/" },
      seen: alert,
      audit: ['tls direct_tcp 198.51.100.7:443'],
    },
    {
      row: 1,
      what: 'HTTP to an address',
      client: 'wget',
      run: { sh: '/.closedbook/busybox wget -Y off -O - http://198.51.100.8/' },
      seen: /403/,
      audit: ['http direct_tcp 198.51.100.8:80'],
    },
    {
      row: 1,
      what: 'TLS to an address',
      client: 'openssl',
      run: {
        sh: 'openssl s_client -connect 198.51.100.9:443 -noservername </dev/null 2>&1 | grep -i alert',
      },
      seen: alert,
      audit: ['tls direct_tcp 198.51.100.9:443'],
    },
    {
      row: 1,
      what: 'bytes to an address',
      client: 'python raw',
      run: { py: 'tcp("198.51.100.10", 443)' },
      seen: alert,
      audit: ['tls direct_tcp 198.51.100.10:443'],
    },
    {
      row: 2,
      what: 'ports 22, 25, 8080, 61999, 3128',
      client: 'python raw',
      run: {
        py: `tcps(${list([22, 25, 8080, 61999, 3128].map((port) => ['198.51.100.2', port]))})`,
      },
      seen: refused,
      audit: [22, 25, 8080, 61999, 3128].map((port) => `tcp direct_tcp 198.51.100.2:${port}`),
    },
    {
      row: 2,
      what: 'a clone by the git protocol',
      client: 'git',
      run: { sh: 'git clone -q git://198.51.100.2/x $(mktemp -d)/x' },
      seen: refused,
      audit: ['tcp direct_tcp 198.51.100.2:9418'],
    },
    {
      row: 3,
      what: 'a plain socket, the proxy in the environment',
      client: 'perl',
      run: {
        sh: `perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new("198.51.100.3:4443") or die $!; $s->read(my $b, 1) or die "closed"; print "through"'`,
      },
      seen: refused,
      audit: ['tcp direct_tcp 198.51.100.3:4443'],
    },
    {
      row: 4,
      what: 'an empty environment',
      client: 'curl',
      run: { sh: 'env -i /usr/bin/curl -sS https://198.51.100.4/' },
      seen: alert,
      audit: ['tls direct_tcp 198.51.100.4:443'],
    },
    {
      row: 4,
      what: '`--noproxy`, a port of its own',
      client: 'curl',
      run: { sh: "curl -sS --noproxy '*' http://198.51.100.4:8080/" },
      seen: refused,
      audit: ['tcp direct_tcp 198.51.100.4:8080'],
    },
    {
      row: 5,
      what: 'a name',
      client: 'curl',
      run: { sh: `NO_PROXY='*' no_proxy='*' curl -sS https://five.${nonce}.example/` },
      seen: /not resolve/,
      audit: [`2x dns dns_query five.${nonce}.example:53`],
    },
    {
      row: 5,
      what: 'an address',
      client: 'python requests',
      run: {
        sh: `NO_PROXY='*' no_proxy='*' python3 -c 'import requests; print(requests.get("http://198.51.100.5/").headers)'`,
      },
      seen: /X-Closedbook-Reason': 'direct_tcp/,
      audit: ['http direct_tcp 198.51.100.5:80'],
    },
    {
      row: 6,
      what: 'lookups with data in the name',
      client: 'python raw',
      run: { py: `resolve("data.${nonce}.canary.example")` },
      seen: /no such name/,
      audit: [`2x dns dns_query data.${nonce}.canary.example:53`],
    },
    {
      row: 6,
      what: "TXT and ANY to the engine's resolver 127.0.0.11",
      client: 'python raw',
      run: {
        py: `dns("txt.${nonce}.example", "127.0.0.11", 16) + dns("any.${nonce}.example", "127.0.0.11", 255)`,
      },
      seen: /code 3code 3/,
      audit: [`dns dns_query txt.${nonce}.example:53`, `dns dns_query any.${nonce}.example:53`],
    },
    {
      row: 7,
      what: 'over UDP and TCP',
      client: 'python raw',
      run: {
        py: `dns("udp.${nonce}.example", "198.51.100.53") + dns_tcp("tcp.${nonce}.example", "198.51.100.53")`,
      },
      seen: /code 3code 3/,
      audit: [`dns dns_query udp.${nonce}.example:53`, `dns dns_query tcp.${nonce}.example:53`],
    },
    {
      row: 7,
      what: 'no DNS on port 53',
      client: 'python raw',
      run: { py: 'tcp("198.51.100.54", 53, b"\\0\\5hello")' },
      seen: refused,
      audit: ['dns dns_query 198.51.100.54:53'],
    },
    {
      row: 8,
      what: 'port 853',
      client: 'openssl',
      run: { sh: 'openssl s_client -connect 198.51.100.85:853 </dev/null' },
      seen: /refused|reset|errno|unexpected eof/i,
      audit: ['tcp direct_tcp 198.51.100.85:853'],
    },
    {
      row: 8,
      what: 'DoH to an address, and by the proxy',
      client: 'curl',
      run: {
        sh: "curl -sS --noproxy '*' -d x https://198.51.100.86/dns-query; curl -sS -d x https://198.51.100.86/dns-query",
      },
      seen: /access denied.*403/s,
      audit: ['tls direct_tcp 198.51.100.86:443', 'connect ip_literal 198.51.100.86:443'],
    },
    {
      row: 8,
      what: 'DoH by its name',
      client: 'python urllib',
      run: { py: 'urllib_get("https://doh.example/dns-query?dns=AAAB")' },
      seen: /403/,
      audit: ['connect not_allowed_host doh.example:443'],
    },
    {
      row: 10,
      what: 'mDNS, LLMNR, SSDP',
      client: 'python raw',
      run: {
        py: '",".join(repr(attempt({"py": f"udp({address!r}, {port})"})["seen"]) for address, port in [("224.0.0.251", 5353), ("224.0.0.252", 5355), ("239.255.255.250", 1900)])',
      },
      seen: /'EPERM','EPERM','EPERM'/,
      audit: [
        'udp direct_udp 224.0.0.251:5353',
        'udp direct_udp 224.0.0.252:5355',
        'udp direct_udp 239.255.255.250:1900',
      ],
    },
    {
      row: 10,
      what: 'broadcast',
      client: 'python raw',
      run: { py: 'udp("255.255.255.255", 67, broadcast=True)' },
      seen: blocked,
      audit: ['udp direct_udp 255.255.255.255:67'],
    },
    {
      row: 11,
      what: 'a port that is served there',
      client: 'python raw',
      run: { py: `tcps(${list(bridge)})` },
      seen: refused,
      audit: census(bridge),
    },
    {
      row: 11,
      what: 'by the proxy',
      client: 'curl',
      run: { sh: 'curl -sS http://172.17.0.1/ -o /dev/null -w "%{http_code}"' },
      seen: /403/,
      audit: ['http ip_literal 172.17.0.1'],
    },
    {
      row: 12,
      what: 'a port that is served on each of them',
      client: 'python raw',
      run: { py: `tcps(${list(rest)})` },
      seen: refused,
      audit: census(rest),
    },
    {
      row: 13,
      what: 'lookups',
      client: 'python raw',
      run: {
        py: 'resolve("host.docker.internal", "gateway.docker.internal", "host.containers.internal")',
      },
      seen: /^no such name$/,
      audit: ['host.docker', 'gateway.docker', 'host.containers'].map(
        (name) => `2x dns dns_query ${name}.internal:53`,
      ),
    },
    {
      row: 13,
      what: 'by the proxy',
      client: 'python urllib',
      run: { py: 'urllib_get("http://host.docker.internal/")' },
      seen: /403 not_allowed_host/,
      audit: ['http not_allowed_host host.docker.internal:80'],
    },
    {
      row: 14,
      what: 'sockets',
      client: 'python raw',
      run: {
        py: 'exists("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock")',
      },
      seen: /^absent$/,
      audit: [],
    },
    {
      row: 14,
      what: 'ports 2375 and 2376',
      client: 'python raw',
      run: { py: 'tcps(("172.17.0.1", 2375), ("172.17.0.1", 2376))' },
      seen: refused,
      audit: ['tcp direct_tcp 172.17.0.1:2375', 'tcp direct_tcp 172.17.0.1:2376'],
    },
    {
      row: 15,
      what: 'version 1, and the token of version 2',
      client: 'curl',
      run: {
        sh: `curl -sS --noproxy '*' http://169.254.169.254/latest/; curl -sS --noproxy '*' -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token`,
      },
      seen: /direct_tcp.*direct_tcp/s,
      audit: ['2x http direct_tcp 169.254.169.254:80'],
    },
    {
      row: 15,
      what: 'by the proxy',
      client: 'python requests',
      run: { py: 'requests_get("http://169.254.169.254/latest/")' },
      seen: /403 ip_literal/,
      audit: ['http ip_literal 169.254.169.254'],
    },
    {
      row: 15,
      what: 'the addresses of other clouds',
      client: 'python raw',
      run: { py: 'tcps(("100.100.100.200", 8080), ("168.63.129.16", 32526))' },
      seen: refused,
      audit: ['tcp direct_tcp 100.100.100.200:8080', 'tcp direct_tcp 168.63.129.16:32526'],
    },
    {
      row: 19,
      what: 'global, unique local, link-local',
      client: 'python raw',
      run: {
        py: '",".join(attempt({"py": call})["seen"] for call in ["tcp(\'2001:db8::7\', 443, family=socket.AF_INET6)", "tcp(\'fd77::5\', 443, family=socket.AF_INET6)", "tcp(\'fe80::1\', 80, family=socket.AF_INET6, scope=1)"])',
      },
      seen: /^((EADDRNOTAVAIL|ENETUNREACH|EINVAL|ECONNREFUSED|EACCES|EHOSTUNREACH),?){3}$/,
      audit: [],
    },
    {
      row: 19,
      what: 'IPv4 by an IPv6 socket',
      client: 'python raw',
      run: { py: 'tcp("::ffff:198.51.100.19", 7000, family=socket.AF_INET6)' },
      seen: refused,
      audit: ['tcp direct_tcp 198.51.100.19:7000'],
    },
    {
      row: 23,
      what: 'datagrams to port 443',
      client: 'python raw',
      run: { py: 'udp("198.51.100.23", 443)' },
      seen: blocked,
      audit: ['udp direct_udp 198.51.100.23:443'],
    },
    {
      row: 23,
      what: 'HTTP/3 alone',
      client: 'curl',
      run: { sh: "curl -sS --http3-only --max-time 5 --noproxy '*' https://198.51.100.123/" },
      seen: /exit [1-9]/,
      audit: ['+ udp direct_udp 198.51.100.123:443'],
    },
    {
      row: 24,
      what: 'packet, raw IP, raw ICMP',
      client: 'python raw',
      run: {
        py: '",".join(attempt({"py": call})["seen"] for call in ["make(socket.AF_PACKET, socket.SOCK_RAW, 0x300)", "make(socket.AF_INET, socket.SOCK_RAW, 255)", "make(socket.AF_INET, socket.SOCK_RAW, 1)"])',
      },
      seen: /^EPERM,EPERM,EPERM$/,
      audit: [],
    },
    {
      row: 66,
      what: "the other's port on loopback",
      client: 'python raw',
      run: { py: 'tcp("127.0.0.1", 5555)' },
      seen: /ECONNREFUSED/,
      audit: [],
    },
    {
      row: 66,
      what: 'addresses that a bridge would give',
      client: 'python raw',
      run: { py: 'tcps(("172.17.0.2", 5555), ("172.17.0.3", 5555))' },
      seen: refused,
      audit: ['tcp direct_tcp 172.17.0.2:5555', 'tcp direct_tcp 172.17.0.3:5555'],
    },
    {
      row: 66,
      what: 'ping',
      client: 'python raw',
      run: { py: 'ping("172.17.0.2")' },
      seen: blocked,
      audit: ['icmp direct_icmp 172.17.0.2'],
    },
  ]
}
