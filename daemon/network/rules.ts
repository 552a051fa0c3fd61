/**
 * The route and the nftables rules of a sealed namespace, as text. The route makes every IPv4 destination local, so
 * that a program which ignores proxy settings reaches a listener of ours; the rules count each attempt exactly
 * (census), refuse what no listener serves, and let a few of those refused TCP connections ring at the tripwire, so
 * that the census is read soon and a flood costs nothing. The sandbox has neither NET_ADMIN nor NET_RAW and can undo
 * none of it.
 */
export const ports = {
  proxy: 3128,
  tls: 443,
  http: 80,
  dns: 53,
  model: 8400,
  huggingFace: 8401,
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

/** TCP ports whose listeners record each attempt themselves, with more than the census could tell. */
export const listenerPorts: readonly number[] = [ports.dns, ports.http, ports.tls]

/**
 * Seconds that the kernel remembers a flow whose end it has seen or that may have none. Its table of flows is bounded
 * for the whole namespace, and where it is full packets are dropped before they are counted. So what stays on loopback
 * is not followed at all (a sandbox may open flows there by the 100,000), but for DNS and errors, whose addresses are
 * translated back, and of the rest nothing is remembered long.
 */
export const flowTimeouts: Readonly<Record<string, number>> = {
  nf_conntrack_udp_timeout: 2,
  nf_conntrack_udp_timeout_stream: 2,
  nf_conntrack_icmp_timeout: 2,
  nf_conntrack_generic_timeout: 2,
  nf_conntrack_tcp_timeout_syn_sent: 5,
  nf_conntrack_tcp_timeout_syn_recv: 5,
  nf_conntrack_tcp_timeout_fin_wait: 5,
  nf_conntrack_tcp_timeout_close_wait: 5,
  nf_conntrack_tcp_timeout_last_ack: 2,
  nf_conntrack_tcp_timeout_time_wait: 1,
  nf_conntrack_tcp_timeout_close: 1,
}

/** The first rule counts by address; where its set is full it doesn't match, and the second counts the rest. */
const count = (match: string, set: string, key: string): string =>
  `    ${match} update @${set} { ${key} } accept\n    ${match} counter name ${set}_more accept`
const syn = 'tcp flags & (syn | ack) == syn'
/** A reset that answers a SYN carries sequence number 0; no other does, but by a chance of one in 4 billion. */
const synRefused = 'ct direction reply tcp flags & (syn | rst | ack) == (rst | ack) tcp sequence 0'
const synRefusedInside =
  'ct state untracked ip saddr 127.0.0.0/8 tcp flags & (syn | rst | ack) == (rst | ack) tcp sequence 0'
const unreachable = 'icmp type destination-unreachable ct state related'
/** Answers a query; one that answers an answer (who asked has gone) goes the other way. */
const portUnreachable = `${unreachable} ct direction reply ct original protocol udp`
const inside = 'ip saddr 127.0.0.0/8 ip daddr 127.0.0.0/8'
const original = 'ct original ip daddr . ct original proto-dst'

/**
 * Set sizes bound the kernel memory that a sandbox can make us use. `*_unanswered` has what found no listener of
 * ours, which is only so while no daemon runs.
 */
export const rules = `
define listeners = { ${listenerPorts.join(', ')} }
table ip closedbook {
  counter tcp_attempts_more { }
  counter udp_attempts_more { }
  counter other_attempts_more { }
  counter tcp_unanswered_more { }
  counter udp_unanswered_more { }
  counter dns_queries { }
  set tcp_attempts { type ipv4_addr . inet_service; size 4096; flags dynamic; counter; }
  set udp_attempts { type ipv4_addr . inet_service; size 4096; flags dynamic; counter; }
  set other_attempts { type ipv4_addr . inet_proto; size 1024; flags dynamic; counter; }
  set tcp_unanswered { type ipv4_addr . inet_service; size 1024; flags dynamic; counter; }
  set udp_unanswered { type ipv4_addr . inet_service; size 1024; flags dynamic; counter; }
  chain untracked {
    type filter hook output priority -300; policy accept;
    ${inside} udp sport ${ports.dns} accept
    ${inside} udp dport ${ports.dns} accept
    ${inside} ip protocol icmp accept
    ${inside} notrack
  }
  chain unanswered {
    type filter hook output priority -160; policy accept;
${count(`${synRefused} ct original proto-dst $listeners`, 'tcp_unanswered', original)}
${count(`${synRefusedInside} tcp sport { ${ports.proxy}, ${listenerPorts.join(', ')} }`, 'tcp_unanswered', 'ip saddr . tcp sport')}
${count(`${portUnreachable} ct original proto-dst ${ports.dns}`, 'udp_unanswered', original)}
  }
  chain census {
    type filter hook output priority -150; policy accept;
    udp dport ${ports.dns} counter name dns_queries accept
    ip daddr 127.0.0.0/8 accept
    ct direction reply accept
    ${unreachable} accept
    tcp dport $listeners accept
${count(syn, 'tcp_attempts', 'ip daddr . tcp dport')}
${count('ip protocol udp', 'udp_attempts', 'ip daddr . udp dport')}
${count('ip protocol != { tcp, udp }', 'other_attempts', 'ip daddr . ip protocol')}
  }
  chain tripwire {
    type nat hook output priority -100; policy accept;
    ip daddr 127.0.0.0/8 accept
    udp dport ${ports.dns} dnat to 127.0.0.1:${ports.dns}
    tcp dport $listeners accept
    ip protocol tcp limit rate 2/second burst 5 packets dnat to :${ports.tripwire}
  }
  chain refuse {
    type filter hook output priority 0; policy accept;
    ip daddr 127.0.0.0/8 accept
    ct direction reply accept
    tcp dport $listeners accept
    ip protocol tcp ct status dnat accept
    ip protocol tcp counter reject with tcp reset
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
