"""Tries ways out of a sandbox and prints what came of each, as one JSON object: {name: {"seen": word, "ms": n}}.

`seen` is "ok" where the attempt got through, "empty" where a connection was closed without a byte, the start of what
came back where there was an answer, and else the name of the errno.
"""
import ctypes
import errno
import json
import os
import socket
import struct
import subprocess
import sys
import time

OUTSIDE, METADATA = "198.51.100.7", "169.254.169.254"
NONCE = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)


def tcp(address, port, say=b"hello\r\n", family=socket.AF_INET):
    with socket.socket(family) as s:
        s.settimeout(5)
        s.connect((address, port))
        if say:
            s.sendall(say)
        got = s.recv(64)
        return "empty" if got == b"" else repr(got)[2:40]


def udp(address, port, payload=b"x", options=()):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        for option in options:
            s.setsockopt(*option)
        s.sendto(payload, (address, port))
        return "ok"


def query(name, address):
    head = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0)
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return head + labels + b"\0" + struct.pack(">HH", 1, 1)


def dns(name, address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.sendto(query(name, address), (address, 53))
        answer, source = s.recvfrom(512)
        return f"code {answer[3] & 15} from {source[0]}"


def dns_tcp(name, address):
    message = query(name, address)
    with socket.create_connection((address, 53), 5) as s:
        s.sendall(struct.pack(">H", len(message)) + message)
        return f"code {s.recv(512)[5] & 15}"


def resolve(name):
    try:
        return socket.getaddrinfo(name, 80)[0][4][0]
    except socket.gaierror as error:
        return {socket.EAI_NONAME: "no such name", socket.EAI_AGAIN: "try again"}.get(error.errno, str(error))


def make(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()
    return "ok"


def option(level, name, value):
    with socket.socket() as s:
        s.setsockopt(level, name, value)
    return "ok"


def call(number, *args):
    if libc.syscall(number, *args) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "ok"


def icmp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
        s.settimeout(5)
        s.sendto(b"\x08\0\xf7\xfe\0\1\0\1", (OUTSIDE, 0))
        return "ok"


def other(protocol, kind=socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind, protocol) as s:
        s.settimeout(5)
        s.connect((OUTSIDE, 9))
        s.send(b"x")
        return "ok"


def command(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    return f"exit {done.returncode}: {(done.stdout + done.stderr).strip().splitlines()[-1][:90]}"


def exists(*paths):
    return ",".join(path for path in paths if os.path.exists(path)) or "absent"


def connect_unix(name):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(name)
        return "ok"


SO_MARK, IP_TRANSPARENT, IP_FREEBIND = 36, 19, 15
attempts = {
    "curl": lambda: command("curl", "-sS", f"https://{OUTSIDE}/"),
    "curl no proxy": lambda: command("curl", "-sS", "--noproxy", "*", f"http://{OUTSIDE}:8080"),
    "curl name": lambda: command("curl", "-sS", f"https://curl.{NONCE}.example/"),
    "git clone": lambda: command("git", "clone", f"git://{OUTSIDE}/x", "/tmp/x"),
    "metadata 80": lambda: tcp(METADATA, 80, b"GET /latest/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    "metadata 8080": lambda: tcp(METADATA, 8080),
    "ssh": lambda: tcp("198.51.100.22", 22),
    "https without a word": lambda: tcp("198.51.100.43", 443, b"SSH-2.0-x\r\n"),
    "http": lambda: tcp("198.51.100.80", 80, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
    "tripwire's own port": lambda: tcp("198.51.100.61", 61999),
    "proxy's port elsewhere": lambda: tcp("198.51.100.31", 3128),
    "dns over tls": lambda: tcp("198.51.100.85", 853),
    "engine over tcp": lambda: tcp("172.17.0.1", 2375),
    "udp": lambda: udp("198.51.100.8", 4433),
    "quic": lambda: udp("198.51.100.8", 443),
    "mdns": lambda: udp("224.0.0.251", 5353),
    "broadcast": lambda: udp("255.255.255.255", 67, b"x", [(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)]),
    "system resolver": lambda: resolve(f"system.{NONCE}.example"),
    "dns query": lambda: dns(f"udp.{NONCE}.example", "198.51.100.53"),
    "dns query over tcp": lambda: dns_tcp(f"tcp.{NONCE}.example", "198.51.100.54"),
    "ping": icmp,
    "udp-lite": lambda: other(136),
    "sctp": lambda: other(132, socket.SOCK_STREAM),
    "dccp": lambda: make(socket.AF_INET, 6, 33),
    "raw icmp": lambda: make(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "raw ip": lambda: make(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
    "packet": lambda: make(socket.AF_PACKET, socket.SOCK_RAW, 0x0300),
    "vsock": lambda: make(40, socket.SOCK_STREAM),
    "bluetooth": lambda: make(31, socket.SOCK_RAW),
    "crypto": lambda: make(38, 5),
    "netlink netfilter": lambda: make(socket.AF_NETLINK, socket.SOCK_RAW, 12),
    "netlink audit": lambda: make(socket.AF_NETLINK, socket.SOCK_RAW, 9),
    "so_mark": lambda: option(socket.SOL_SOCKET, SO_MARK, 1),
    "ip_transparent": lambda: option(socket.IPPROTO_IP, IP_TRANSPARENT, 1),
    "io_uring": lambda: call(425, 8, ctypes.create_string_buffer(256)),
    "bpf": lambda: call(321, 0, ctypes.create_string_buffer(256), 128),
    "user namespace": lambda: call(272, 0x10000000),
    "network namespace": lambda: call(272, 0x40000000),
    "setns": lambda: call(308, os.open("/proc/1/ns/net", os.O_RDONLY) if os.access("/proc/1/ns/net", os.R_OK) else 0, 0),
    "mount": lambda: call(165, b"none", b"/mnt", b"tmpfs", 0, 0),
    "ptrace of pid 1": lambda: call(101, 0x4206, 1, 0, 0),
    "kill pid 1": lambda: (os.kill(1, 9), "ok")[1],
    "memory of pid 1": lambda: open("/proc/1/mem", "r+b") and "ok",
    "sacrifice pid 1": lambda: open("/proc/1/oom_score_adj", "w") and "ok",
    "ipv6": lambda: tcp("2001:db8::7", 443, family=socket.AF_INET6),
    "ipv6 mapped": lambda: tcp("::ffff:198.51.100.66", 7000, family=socket.AF_INET6),
    "ipv6 link local": lambda: tcp("fe80::1", 80, family=socket.AF_INET6),
    "engine socket": lambda: exists("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"),
    "abstract socket": lambda: connect_unix("\0containerd-shim"),
}

only = sys.argv[2:]
results = {}
for name, attempt in attempts.items():
    if only and name not in only:
        continue
    start = time.monotonic()
    try:
        seen = attempt()
    except OSError as error:
        seen = errno.errorcode.get(error.errno, str(error)) if error.errno else type(error).__name__
    except Exception as error:
        seen = f"{type(error).__name__}: {error}"
    results[name] = {"seen": seen, "ms": round((time.monotonic() - start) * 1000)}
print(json.dumps(results))
