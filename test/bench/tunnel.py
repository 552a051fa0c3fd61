"""Both ends of a tunnel, as small as they can be, so that what is measured is what lies between them.

serve HELLO_BYTES             listens on loopback, prints its port; takes a hello and a size, sends so many bytes
fetch PROXY TARGET HELLO STREAMS BYTES
                              opens STREAMS tunnels to TARGET (host:port) by CONNECT at PROXY (a port; 0: none, TARGET
                              itself), then fetches BYTES on each at once; prints bytes and seconds
"""
import os
import socket
import sys
import threading
import time

CHUNK = 1 << 20


def take(peer, length):
    data = b""
    while len(data) < length:
        more = peer.recv(length - len(data))
        if not more:
            raise SystemExit("closed early")
        data += more
    return data


def serve(hello_bytes):
    source = os.memfd_create("bytes")
    os.truncate(source, 64 * CHUNK)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)

    def answer(peer):
        try:
            take(peer, hello_bytes)
            left = int.from_bytes(take(peer, 8), "big")
            while left > 0:
                left -= os.sendfile(peer.fileno(), source, 0, min(left, 64 * CHUNK))
        except (OSError, SystemExit):
            pass
        peer.close()

    while True:
        peer, _ = listener.accept()
        threading.Thread(target=answer, args=(peer,), daemon=True).start()


def open_tunnel(proxy, target, hello):
    host, _, port = target.rpartition(":")
    peer = socket.create_connection((host, int(port)) if proxy == 0 else ("127.0.0.1", proxy))
    if proxy != 0:
        peer.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += take(peer, 1)
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise SystemExit(f"refused: {head!r}")
    peer.sendall(hello)
    return peer


def fetch(proxy, target, hello, streams, size):
    ready, go, done = os.pipe(), os.pipe(), os.pipe()
    for _ in range(streams):
        if os.fork() == 0:
            peer = open_tunnel(proxy, target, hello)
            os.write(ready[1], b".")
            os.close(go[1])
            os.read(go[0], 1)
            peer.sendall(size.to_bytes(8, "big"))
            buffer, got = bytearray(CHUNK), 0
            while got < size:
                more = peer.recv_into(buffer)
                if more == 0:
                    break
                got += more
            os.write(done[1], b"." if got == size else b"!")
            os._exit(0)
    for _ in range(streams):
        os.read(ready[0], 1)
    started = time.monotonic()
    os.close(go[1])
    ends = b""
    while len(ends) < streams:
        ends += os.read(done[0], streams)
    seconds = time.monotonic() - started
    if b"!" in ends:
        raise SystemExit("a tunnel ended early")
    print(streams * size, seconds)


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    fetch(int(sys.argv[2]), sys.argv[3], bytes.fromhex(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6]))
