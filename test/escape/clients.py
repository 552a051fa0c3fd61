"""Makes the attempts of the catalogue, several at once, and prints one JSON object: {number of the attempt: what was seen}.

The argument is a list of {"id", "sh"} or {"id", "py"}: a command of the shell, or an expression over the functions
here. `seen` is the last line that a command printed, the statuses and reasons of HTTP answers, or the name of the errno.
"""
import concurrent.futures
import ctypes
import errno
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request

PROXY, HUB, MODEL = ("127.0.0.1", 3128), "http://127.0.0.1:8401", "http://127.0.0.1:8400"
libc = ctypes.CDLL(None, use_errno=True)


def answers(data):
    """`200; 403 not_allowed_host`, or what else came."""
    heads = re.findall(rb"HTTP/1\.[01] (\d{3})[^\r]*((?:\r\n[^\r]+)*)\r\n\r\n", data)
    if not heads:
        return "alert %d" % data[6] if data[:1] == b"\x15" and len(data) > 6 else repr(data[:40])[2:-1] or "closed"
    reason = lambda head: re.search(rb"(?i)x-closedbook-reason: (\S+)", head)
    return "; ".join(f"{status.decode()} {found[1].decode()}" if (found := reason(head)) else status.decode() for status, head in heads)


def read(s, limit=65536):
    data = b""
    try:
        while len(data) < limit and (piece := s.recv(65536)):
            data += piece
    except TimeoutError:
        pass
    except ConnectionResetError:
        data = data or b"reset"
    return data


def raw(*parts, at=PROXY, wait=2, pause=0.0):
    """Sends the parts, one write each; the answers that come within `wait` seconds after the last."""
    with socket.create_connection(at, 20) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            s.sendall(part.encode("utf-8") if isinstance(part, str) else part)
            time.sleep(pause)
        s.settimeout(wait)
        return answers(read(s))


def get(url, *headers, method="GET", version="1.1", body=""):
    """A request as it is to stand on the wire; without headers it has the Host that belongs to the URL."""
    lines = headers or (f"Host: {url.split('/')[2]}",)
    return f"{method} {url} HTTP/{version}\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n" + body


def connect(target, *headers):
    return f"CONNECT {target} HTTP/1.1\r\n" + "".join(f"{line}\r\n" for line in headers or (f"Host: {target}",)) + "\r\n"


def tls(name):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    return context.wrap_bio(incoming, outgoing, server_hostname=name), incoming, outgoing


def hello(name):
    """The first flight of a real client."""
    client, _, outgoing = tls(name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()


def sized(width, data):
    return len(data).to_bytes(width, "big") + data


def made_hello(name, *more):
    """One put together by hand, with further extensions (type, bytes)."""
    server_name = sized(2, sized(2, b"\0" + sized(2, name.encode())))
    extensions = b"".join(struct.pack(">H", kind) + data for kind, data in [(0, server_name), *((kind, sized(2, data)) for kind, data in more)])
    body = b"\x03\x03" + b"\7" * 32 + sized(1, b"\0" * 32) + sized(2, b"\x13\x01") + sized(1, b"\0") + sized(2, extensions)
    return b"\x16\x03\x01" + sized(2, b"\1" + sized(3, body))


def in_records(flight, size):
    """The same handshake message in records of `size` bytes."""
    message = flight[5:]
    return b"".join(b"\x16\x03\x01" + sized(2, message[at : at + size]) for at in range(0, len(message), size))


def tunnel(target, first, piece=0, wait=2, headers=()):
    """What came of a CONNECT, and of the first bytes inside."""
    with socket.create_connection(PROXY, 20) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(connect(target, *headers).encode())
        s.settimeout(20)
        head = s.recv(4096)
        if not head.startswith(b"HTTP/1.1 200"):
            return answers(head)
        for at in range(0, len(first), piece or max(len(first), 1)):
            s.sendall(first[at : at + (piece or len(first))])
        s.settimeout(wait)
        return "200, then " + answers(read(s))


def https(target, path, name=None, host=None, piece=0, records=0):
    """A whole request through a tunnel; its ClientHello may go out in pieces or in several records."""
    name = name or target.rstrip(":0123456789").rstrip(".").lower()
    client, incoming, outgoing = tls(name)
    with socket.create_connection(PROXY, 20) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(connect(target).encode())
        s.settimeout(20)
        head = s.recv(4096)
        if not head.startswith(b"HTTP/1.1 200"):
            return answers(head)
        first = True

        def pump(action):
            nonlocal first
            while True:
                try:
                    result, waits = action(), False
                except ssl.SSLWantReadError:
                    result, waits = None, True
                flight = outgoing.read()
                if first and flight:
                    flight, first = in_records(flight, records) if records else flight, False
                for at in range(0, len(flight), piece or max(len(flight), 1)):
                    s.sendall(flight[at : at + (piece or len(flight))])
                if not waits:
                    return result
                data = s.recv(65536)
                if not data or data[:1] == b"\x15":
                    raise ConnectionError("alert or end")
                incoming.write(data)

        pump(client.do_handshake)
        request = f"GET {path} HTTP/1.1\r\nHost: {host or name}\r\nConnection: close\r\n\r\n"
        pump(lambda: client.write(request.encode()))
        return "200, then " + answers(pump(lambda: client.read(65536)))


def tcp(address, port, say=b"hello\r\n", family=socket.AF_INET, scope=0):
    with socket.socket(family) as s:
        s.settimeout(5)
        s.connect((address, port, 0, scope) if scope else (address, port))
        s.sendall(say)
        return answers(read(s, 1))


def tcps(*targets):
    """Several of these; the words for each."""
    words = set()
    for address, port in targets:
        try:
            words.add(tcp(address, port))
        except OSError as error:
            words.add(errno.errorcode.get(error.errno, str(error)))
    return ",".join(sorted(words))


def udp(address, port, payload=b"x", broadcast=False):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        if broadcast:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.sendto(payload, (address, port))
        return "sent"


def ping(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
        s.sendto(b"\x08\0\xf7\xfe\0\1\0\1", (address, 0))
        return "sent"


def query(name, kind=1):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def dns(name, address, kind=1):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.sendto(query(name, kind), (address, 53))
        return f"code {s.recv(512)[3] & 15}"


def dns_tcp(name, address):
    message = query(name)
    with socket.create_connection((address, 53), 5) as s:
        s.sendall(struct.pack(">H", len(message)) + message)
        return f"code {s.recv(512)[5] & 15}"


def resolve(*names):
    words = set()
    for name in names:
        try:
            words.add(socket.getaddrinfo(name, 80)[0][4][0])
        except socket.gaierror as error:
            words.add({socket.EAI_NONAME: "no such name", socket.EAI_AGAIN: "try again"}.get(error.errno, str(error)))
    return ",".join(sorted(words))


def urllib_get(url, data=None, headers=None, method=None, agent=None):
    """By the standard library, with the proxy of the environment."""
    request = urllib.request.Request(url, data=data, headers=headers or {}, method=method)
    context = ssl._create_unverified_context()
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler(), urllib.request.HTTPSHandler(context=context)).open(request, timeout=20) as answer:
            return f"{answer.status}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.headers.get('X-Closedbook-Reason')}"
    except urllib.error.URLError as error:
        return str(error.reason)


def requests_get(url, **options):
    import requests

    requests.packages.urllib3.disable_warnings()
    try:
        answer = requests.get(url, timeout=20, verify=False, **options)
        return f"{answer.status_code} {answer.headers.get('X-Closedbook-Reason')}"
    except requests.RequestException as error:
        return str(error)


def ask(path, **body):
    """A call of the model gateway."""
    return urllib_get(MODEL + path, json.dumps(body).encode(), {"content-type": "application/json", "authorization": "Bearer of-another-sandbox"})


def asks(path, *bodies):
    return ",".join(sorted({ask(path, **body) for body in bodies}))


def hub(*requests):
    """`METHOD /path` of the Hugging Face gateway; the different answers."""
    sent = lambda method, path: urllib_get(HUB + path, b"{}" if method in ("POST", "PUT", "PATCH") else None, {"content-type": "application/json"}, method)
    return ",".join(sorted({sent(*one.split(" ", 1)) for one in requests}))


def make(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()
    return "made"


def bind(address, port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind((address, port))
        s.listen()
        return "bound"


def binds(*targets):
    words = set()
    for target in targets:
        try:
            words.add(bind(*target))
        except OSError as error:
            words.add(errno.errorcode.get(error.errno, str(error)))
    return ",".join(sorted(words))


def exists(*paths):
    return ",".join(path for path in paths if os.path.lexists(path)) or "absent"


def write(path, text="x"):
    with open(path, "a") as file:
        file.write(text)
    return "written"


def connect_unix(name):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(name)
        return "connected"


def unix_sockets():
    return ",".join(line.split()[7] for line in open("/proc/net/unix").readlines()[1:] if len(line.split()) > 7) or "none"


def writable_mounts():
    """What a sandbox could write that is neither its own file system nor made of memory."""
    ours, kinds = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf"), ("overlay", "proc", "tmpfs", "devpts", "mqueue", "sysfs", "cgroup", "cgroup2")
    mounts = [line.split() for line in open("/proc/self/mounts")]
    return ",".join(where for _, where, kind, options, *_ in mounts if kind not in kinds and where not in ours and options.split(",")[0] == "rw") or "none"


def holds(word):
    """Places of a sandbox that hold a word."""
    found = [name for name, value in os.environ.items() if word in name + value]
    for folder in ("/proc/1/environ", "/proc/1/cmdline", "/proc/self/environ", "/proc/net/tcp", "/etc/hosts", "/etc/environment"):
        try:
            found += [folder] if word.encode() in open(folder, "rb").read() else []
        except OSError:
            pass
    return ",".join(found) or "nowhere"


def many(count, target, hold):
    """So many tunnels at once, each without a byte inside; how many were given and how many turned away."""
    words, sockets = {}, []
    for _ in range(count):
        s = socket.create_connection(PROXY, 20)
        s.sendall(connect(target).encode())
        sockets.append(s)
    for s in sockets:
        s.settimeout(20)
        word = answers(s.recv(4096))
        words[word] = words.get(word, 0) + 1
    time.sleep(hold)
    return ", ".join(f"{number} x {word}" for word, number in sorted(words.items()))


def flood(count, host):
    """Denied requests on one connection; the number of refusals."""
    request = get(f"http://{host}/").encode()
    refused = 0
    with socket.create_connection(PROXY, 20) as s:
        for at in range(0, count, 50):
            s.sendall(request * 50)
            expected = refused + 50
            data = b""
            while refused < expected:
                data += s.recv(65536)
                refused += (found := data.count(b"\r\n\r\nclosedbook: "))
                data = data[data.rfind(b"\r\n\r\nclosedbook: ") + 5 :] if found else data
    return f"{refused} refused"


def drip(seconds):
    """A request of which a byte comes each second."""
    with socket.create_connection(PROXY, 5) as s:
        s.settimeout(1)
        for byte in get("http://web.example/drip" + "x" * 100).encode()[: int(seconds)]:
            s.sendall(bytes([byte]))
            try:
                if data := s.recv(4096):
                    return answers(data)
                return "closed"
            except TimeoutError:
                pass
    return "still open"


def shell(command):
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return f"exit {done.returncode}: {' / '.join(lines[-3:])[:200]}"


def attempt(one):
    started = time.monotonic()
    try:
        seen = shell(one["sh"]) if "sh" in one else str(eval(one["py"]))
    except OSError as error:
        seen = errno.errorcode.get(error.errno, str(error)) if error.errno else f"{type(error).__name__} {error}"
    except Exception as error:
        seen = f"{type(error).__name__}: {error}"
    return {"seen": seen, "seconds": round(time.monotonic() - started, 1)}


todo = json.loads(sys.argv[1])
with concurrent.futures.ThreadPoolExecutor(12) as pool:
    slow_first = sorted(todo, key=lambda one: not one["slow"])
    done = dict(zip((one["id"] for one in slow_first), pool.map(attempt, slow_first)))
print(json.dumps(done))
