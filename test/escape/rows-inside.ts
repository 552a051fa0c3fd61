/** Rows 67 to 82: tricks with what is inside the sandbox. */
import type { Attempt, Facts } from './catalogue.ts'

export function insideAttempts({ nonce }: Facts): readonly Attempt[] {
  return [
    {
      row: 67,
      what: 'anything writable that is not its own',
      client: 'python raw',
      run: { py: 'writable_mounts()' },
      seen: /^none$/,
      audit: [],
    },
    {
      row: 67,
      what: 'a file in /tmp and /dev/shm, for the other',
      client: 'python raw',
      run: {
        py: 'write(f"/tmp/channel-{os.getuid()}") + write(f"/dev/shm/channel-{os.getuid()}") + exists("/tmp/from-another", "/dev/shm/from-another")',
      },
      seen: /^writtenwrittenabsent$/,
      audit: [],
    },
    {
      row: 69,
      what: 'an allowed name for an evil address: the proxy looks it up itself',
      client: 'curl',
      run: {
        sh: `echo 198.51.100.66 real.wild.example evil.example >> /etc/hosts; curl -sSk https://real.wild.example/69-${nonce}`,
      },
      seen: /this is the outside/,
      audit: ['connect allowed_host real.wild.example:443'],
      reaches: [`https real.wild.example /69-${nonce}`],
      as: 'root',
    },
    {
      row: 69,
      what: 'a denied name for any address',
      client: 'curl',
      run: {
        sh: 'curl -sS --noproxy "*" --resolve evil.example:80:198.51.100.66 http://evil.example/',
      },
      seen: /not_allowed_host/,
      audit: ['http not_allowed_host evil.example:80'],
    },
    {
      row: 69,
      what: 'a nameserver of its own choice',
      client: 'sh',
      run: { sh: 'echo nameserver 198.51.100.53 > /etc/resolv.conf; getent hosts own.evil.test' },
      seen: /exit [1-9]/,
      audit: ['+ dns dns_query own.evil.test:53'],
    },
    {
      row: 70,
      what: 'the ports of the proxy, the gateways, TLS, HTTP, DNS, on any address',
      client: 'python raw',
      run: {
        py: 'binds(*[(address, port) for address in ("127.0.0.1", "0.0.0.0") for port in (3128, 8400, 8401, 443, 80, 53, 61999)], ("198.51.100.7", 443), ("127.0.0.9", 53))',
      },
      seen: /^(EADDRINUSE,?|EACCES,?|EADDRNOTAVAIL,?)+$/,
      audit: [],
    },
    {
      row: 71,
      what: "list them, connect to the engine's",
      client: 'python raw',
      run: {
        py: 'unix_sockets() + "," + ",".join(attempt({"py": f"connect_unix({name!r})"})["seen"] for name in ("\\0containerd-shim", "\\0/containerd-shim/x.sock@", "\\0docker"))',
      },
      seen: /^none,ECONNREFUSED,ECONNREFUSED,ECONNREFUSED$/,
      audit: [],
    },
    {
      row: 72,
      what: 'write where our files are mounted, mount over them',
      client: 'sh',
      run: {
        sh: 'touch /.closedbook/busybox; echo x >> /.closedbook/init; mv /.closedbook /x; mount -t tmpfs none /.closedbook; find / -xdev -type s 2>/dev/null | head -3; ls /gw',
      },
      seen: /exit [1-9](?!.*\.sock)/s,
      audit: [],
    },
    {
      row: 73,
      what: 'a byte a second',
      client: 'python raw',
      run: { py: 'drip(40)' },
      seen: /^408|closed/,
      audit: ['http bad_request -'],
      in: 'other',
      as: 'root',
      slow: true,
    },
    {
      row: 73,
      what: '80 tunnels without a byte inside',
      client: 'python raw',
      run: { py: 'many(80, "web.example:443", 6)' },
      seen: /^64 x 200, 16 x 429 limit_conns$/,
      audit: [
        '64x connect hello_timeout web.example:443',
        '16x connect limit_conns web.example:443',
      ],
      in: 'other',
      as: 'root',
      slow: true,
    },
    {
      row: 75,
      what: '6,000 denials',
      client: 'python raw',
      run: { py: 'flood(6000, "flood.example")' },
      seen: /^6000 refused$/,
      audit: ['6000x http not_allowed_host flood.example:80'],
      in: 'other',
      as: 'user',
    },
    {
      row: 82,
      what: 'engines and builders',
      client: 'sh',
      run: { sh: 'command -v docker podman buildah nerdctl kaniko ctr runc; docker build .' },
      seen: /exit 127/,
      audit: [],
    },
  ]
}
