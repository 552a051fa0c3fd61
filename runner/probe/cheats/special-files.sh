# tries: pipes, sockets and devices where results and code are read, so that a reader hangs or reads for ever
# must: tests_failed workdir_unreadable
for path in /results/results.xml /logs/verifier/reward.txt "$WORKDIR/pipe" "$WORKDIR/conftest.py" "$WORKDIR/.gitattributes"; do
  mkdir -p "$(dirname "$path")" 2>/dev/null
  rm -f "$path" 2>/dev/null
  mkfifo "$path" 2>/dev/null && tried "made the pipe $path"
done
[ -n "$PY" ] && "$PY" -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$WORKDIR/socket" 2>/dev/null && tried 'made a socket'
mknod "$WORKDIR/zero" c 1 5 2>/dev/null && tried 'made a device'
ln -sf /dev/zero "$WORKDIR/endless" && tried 'linked a device'
