"""What one sandbox does to be a burden to others, for so many seconds or until it is done; prints what came of it.

tunnels COUNT TARGET HELLO SECONDS   opens tunnels, one after the other, and keeps what it gets
loris COUNT SECONDS                  requests of which a byte comes twice a second
denials COUNT SECONDS                denied requests, pipelined on four connections, to the last one
stream TARGET HELLO BYTES SECONDS    one stream through a tunnel, to the last byte
"""
import collections
import socket
import sys
import threading
import time

PROXY = ("127.0.0.1", 3128)
kind, *args, seconds = sys.argv[1:]
until = time.monotonic() + float(seconds)
seen = collections.Counter()


def tunnel(target, first):
    s = socket.create_connection(PROXY, 30)
    s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = s.recv(4096)
    word = head[9:12].decode() or "turned away"
    if word == "200":
        s.sendall(first)
    return s, word


if kind == "tunnels":
    kept = []
    for _ in range(int(args[0])):
        try:
            s, word = tunnel(args[1], bytes.fromhex(args[2]))
            kept.append(s)
        except OSError:
            word = "reset"
        seen[word] += 1
    time.sleep(max(0, until - time.monotonic()))
elif kind == "loris":
    kept = [socket.create_connection(PROXY, 30) for _ in range(int(args[0]))]
    for byte in b"GET http://denied.example/" + b"x" * 1000:
        for s in kept:
            try:
                s.send(bytes([byte]))
                seen["bytes"] += 1
            except OSError:
                seen["refused"] += 1
        if time.monotonic() > until:
            break
        time.sleep(0.5)
elif kind == "denials":
    request = b"GET http://denied.example/ HTTP/1.1\r\nHost: denied.example\r\n\r\n"
    mark = b"\r\n\r\nclosedbook: "

    def flood(count):
        with socket.create_connection(PROXY, 30) as s:
            for _ in range(count // 50):
                s.sendall(request * 50)
                got, data = 0, b""
                while got < 50:
                    data += s.recv(65536)
                    found = data.count(mark)
                    got += found
                    if found:
                        data = data[data.rfind(mark) + len(mark) :]
                seen["refused"] += 50

    floods = [threading.Thread(target=flood, args=(int(args[0]) // 4,)) for _ in range(4)]
    for one in floods:
        one.start()
    for one in floods:
        one.join()
else:
    s, word = tunnel(args[0], bytes.fromhex(args[1]))
    size, buffer = int(args[2]), bytearray(1 << 20)
    started = time.monotonic()
    s.sendall(size.to_bytes(8, "big"))
    while seen["bytes"] < size and (more := s.recv_into(buffer)):
        seen["bytes"] += more
    seen["MB/s"] = round(seen["bytes"] / (time.monotonic() - started) / 1e6)
print(", ".join(f"{count} {word}" for word, count in sorted(seen.items())))
