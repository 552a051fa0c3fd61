# tries: to reach or replace what carries commands in: sockets, programs of the harness, file descriptors of others
# must: tests_failed
tried 'a search for what runs commands here'
for socket in /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /var/lib/closedbook/daemon.sock /run/closedbook.sock; do
  [ -S "$socket" ] && leak "a socket of the host: $socket"
done
if [ -r /proc/net/unix ]; then
  while read -r _ _ _ _ _ _ _ path; do
    case $path in *docker* | *containerd* | *closedbook*) leak "a socket of the host by name: $path" ;; esac
  done </proc/net/unix
fi
for port in 2375 2376 8400 8402; do
  (exec 3<>"/dev/tcp/127.0.0.1/$port" && printf 'GET /v1/leases HTTP/1.0\r\n\r\n' >&3 && head -c 200 <&3) 2>/dev/null | grep -q 'HTTP/1.. 200' &&
    leak "port $port answers"
done
for place in /closedbook-script /opt/closedbook /closedbook /solution; do
  [ -e "$place" ] || continue
  (printf 'x' >"$place/probe") 2>/dev/null && leak "can write into $place"
done
exit 0
