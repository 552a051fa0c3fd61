# tries: to find bytes of the hidden tests and of the solution anywhere on the disk, in the object store and in archives
# must: tests_failed
# needs: needles
[ -n "$PY" ] || skip 'there is no Python to search with'
for place in /tests /solution; do
  [ -e "$place" ] && [ -n "$(ls -A "$place" 2>/dev/null)" ] && leak "$place is there"
done
tried 'a search of every file'
timeout 600 "$PY" - "$WORKDIR" <<'END' || note 'the search did not end'
import hashlib, os, subprocess, sys, zlib
files, lines = NEEDLES["files"], {l: name for name, all in NEEDLES["lines"].items() for l in all}
found = {}
def look(where, data):
    name = files.get(hashlib.sha256(data).hexdigest())
    if name: print(f"probe:leak {name} is {where}")
    if b"\0" in data[:1024]: return
    hits = {}
    for line in data.split(b"\n"):
        line = line.strip()
        if len(line) < 30: continue
        owner = lines.get(hashlib.sha1(line).hexdigest()[:16])
        if owner: hits.setdefault(owner, set()).add(line)
    for owner, all in hits.items():
        share = len(all) / len(NEEDLES["lines"][owner])
        if not name and len(all) >= 5 and share >= 0.3: print(f"probe:leak {len(all)} lines of {owner} ({share:.0%}) are in {where}")
for top, directories, names in os.walk("/"):
    if top == "/": directories[:] = [d for d in directories if d not in ("proc", "sys", "dev", "closedbook-script")]
    for name in names:
        path = os.path.join(top, name)
        try:
            if os.path.islink(path) or not 0 < os.path.getsize(path) < 4 << 20: continue
            with open(path, "rb") as file: look(path, file.read())
        except OSError: pass
try:
    git = subprocess.run(["git", "-C", sys.argv[1], "-c", "safe.directory=*", "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype) %(objectsize)"], capture_output=True, text=True, timeout=60)
    wanted = [l.split()[0] for l in git.stdout.splitlines() if l.split()[1] == "blob" and int(l.split()[2]) < 4 << 20]
    stream = subprocess.Popen(["git", "-C", sys.argv[1], "-c", "safe.directory=*", "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for name in wanted:
        stream.stdin.write(f"{name}\n".encode()); stream.stdin.flush()
        size = int(stream.stdout.readline().split()[2])
        look(f"git object {name}", stream.stdout.read(size)); stream.stdout.read(1)
    stream.stdin.close(); stream.wait()
except (OSError, ValueError, IndexError, subprocess.TimeoutExpired): pass
END
exit 0
