/**
 * The route and the nftables rules of a sealed namespace, as text. The route makes every IPv4 destination local, so
 * that a program which ignores proxy settings reaches a listener of ours; the rules count each attempt exactly
 * (census), bring every TCP port to the tripwire, and refuse what is neither TCP nor ours. The sandbox has neither
 * NET_ADMIN nor NET_RAW and can undo none of it.
 */
export const ports = {
  proxy: 3128,
  tls: 443,
  http: 80,
  dns: 53,
  model: 8400,
  exec: 8402,
  tripwire: 61999,
} as const

export const routeArguments = [
  'route',
  'add',
  'local',
  '0.0.0.0/0',
  'dev',
  'lo',
  'src',
  '127.0.0.1',
]

/** Set sizes bound the kernel memory a sandbox can make us use; beyond them the totals still count. */
export const rules = `
table ip closedbook {
  counter tcp_total { }
  counter udp_total { }
  counter other_total { }
  set tcp_attempts { type ipv4_addr . inet_service; size 4096; flags dynamic; counter; }
  set udp_attempts { type ipv4_addr . inet_service; size 4096; flags dynamic; counter; }
  set other_attempts { type ipv4_addr . inet_proto; size 1024; flags dynamic; counter; }
  chain census {
    type filter hook output priority -200; policy accept;
    ip daddr 127.0.0.0/8 accept
    ct direction reply accept
    tcp flags & (syn | ack) == syn counter name tcp_total update @tcp_attempts { ip daddr . tcp dport }
    ip protocol udp counter name udp_total update @udp_attempts { ip daddr . udp dport }
    ip protocol != { tcp, udp } counter name other_total update @other_attempts { ip daddr . ip protocol }
  }
  chain tripwire {
    type nat hook output priority -100; policy accept;
    ip daddr 127.0.0.0/8 accept
    udp dport ${ports.dns} dnat to 127.0.0.1:${ports.dns}
    tcp dport ${ports.dns} dnat to 127.0.0.1:${ports.dns}
    tcp dport { ${ports.http}, ${ports.tls} } accept
    ip protocol tcp dnat to :${ports.tripwire}
  }
  chain refuse {
    type filter hook output priority 0; policy accept;
    ip daddr 127.0.0.0/8 accept
    ct direction reply accept
    ip protocol udp counter reject
    ip protocol icmp ct state new counter reject
    ip protocol != { tcp, udp, icmp } counter reject
  }
}
table ip6 closedbook {
  chain refuse {
    type filter hook output priority 0; policy accept;
    ip6 daddr ::1 accept
    counter reject
  }
}
`
