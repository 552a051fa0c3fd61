# tries: more rights: namespaces, mounts, devices, cgroups, kernel settings, modules, set-id programs, raw sockets
# must: tests_failed
tried 'rights that no agent has'
works() { # WHAT COMMAND...
  local what=$1
  shift
  timeout 5 "$@" >/dev/null 2>&1 && leak "$what"
}
have unshare && works 'a new user namespace' unshare -Ur true
have unshare && works 'a new network namespace' unshare -n true
have mount && works 'a mount' mount -t tmpfs none /mnt
works 'a device' mknod /var/tmp/disk b 8 0
works 'kernel settings' sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
works 'the host name' sh -c 'echo probe >/proc/sys/kernel/hostname'
works 'core_pattern' sh -c 'echo "|/var/tmp/x" >/proc/sys/kernel/core_pattern'
works 'sysrq' sh -c 'echo h >/proc/sysrq-trigger'
works 'a cgroup release agent' sh -c 'mkdir -p /var/tmp/cg && mount -t cgroup -o rdma cgroup /var/tmp/cg'
have nsenter && works 'the namespaces of PID 1' nsenter -t 1 -n true
have ip && works 'the network' ip link set lo down
if [ -n "$PY" ]; then
  works 'a raw socket' "$PY" -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'
  works 'a packet socket' "$PY" -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'
  works 'a vsock' "$PY" -c 'import socket; socket.socket(40, socket.SOCK_STREAM)'
  works 'io_uring' "$PY" -c 'import ctypes; import sys; sys.exit(ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(256)) < 0)'
  works 'root again' "$PY" -c 'import os; os.setuid(65534); os.setuid(0)'
fi
grep -q '^CapEff:\s*0000000000000000$' /proc/self/status || note "capabilities: $(grep CapEff /proc/self/status | tr -d '\t')"
exit 0
