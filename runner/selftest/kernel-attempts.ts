/**
 * What the kernel must refuse, or must not have: other namespaces, devices, the host's settings, the sandbox's own
 * first process. None of it leaves an audit event, for nothing was sent; and where the sandbox is broken, none of it
 * changes the host.
 */
import { busyboxPath, type Attempt } from './attempt.ts'

const refusal = /not permitted|denied|Read-only file system|not implemented/i

export function kernelAttempts(): Attempt[] {
  const refused = (name: string, command: string): Attempt => ({
    name,
    command,
    expected: 'refused',
    meets: ({ exit, output }) => exit !== 0 && refusal.test(output),
    audit: null,
  })
  const absent = (name: string, command: string, expected = 'absent'): Attempt => ({
    name,
    command,
    expected,
    meets: ({ output }) => output === '',
    audit: null,
  })
  return [
    refused('raw socket', '$b traceroute -I -m 1 -q 1 -w 1 198.51.100.7'),
    refused('packet socket', '$b arping -c 1 -w 1 -I lo 198.51.100.7'),
    refused('a network namespace', '$b unshare -n $b true'),
    refused('a user namespace', '$b unshare -U $b true'),
    refused("the first process's namespaces", '$b nsenter -t 1 -n $b true'),
    refused('mount', '$b mount -t tmpfs none /tmp'),
    refused('a device', '$b mknod /tmp/selftest-device b 8 0'),
    refused('another root', '$b chroot / $b true'),
    refused('the link', '$b ip link set lo down'),
    refused('a route', '$b ip route add 198.51.100.0/24 dev lo'),
    refused('an address', '$b ip addr add 198.51.100.9/32 dev lo'),
    refused('forwarding', `$b sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'`),
    refused("the host's name", '$b hostname selftest'),
    // To what it is; the status is 0 whether or not it was set.
    refused("the host's clock", '$b date -s @$($b date +%s); false'),
    refused("the kernel's log", '$b dmesg'),
    refused('a module', `$b insmod ${busyboxPath}`),
    refused('to end the first process', '$b kill -9 1'),
    refused('memory of the first process', '$b dd if=/proc/1/mem of=/dev/null bs=1 count=1'),
    refused('environment of the first process', '$b cat /proc/1/environ'),
    refused('a control group', 'cd /sys/fs/cgroup && $b mkdir selftest && $b rmdir selftest'),
    refused("the sandbox's tools", `$b chmod 755 ${busyboxPath}`),
    {
      name: "the proxy's port",
      command: '$b timeout 1 $b nc -l -p 3128',
      expected: 'in use',
      meets: ({ output }) => /in use/.test(output),
      audit: null,
    },
    absent(
      'interfaces beside lo',
      "$b tail -n +3 /proc/net/dev | $b cut -d : -f 1 | $b tr -d ' ' | $b grep -v '^lo$'; true",
      'none',
    ),
    absent(
      'engine sockets',
      'for s in /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock; do [ -e $s ] && echo $s; done; true',
    ),
    absent(
      'capabilities',
      "$b grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | $b grep -v '0000000000000000$'; true",
      'none',
    ),
    absent(
      'disks',
      'for d in /dev/sda /dev/vda /dev/nvme0n1 /dev/kvm /dev/mem /dev/kmsg /dev/fuse /dev/net/tun; do [ -e $d ] && echo $d; done; true',
    ),
  ]
}
