#!/bin/sh
# Writes a tar of the base root file system to stdout; everything else goes to stderr.
# Usage (in a mount namespace of its own): build.sh SUITE PACKAGES SCRATCH [MIRROR]
# SCRATCH is an empty directory. Where memory allows, a tmpfs is mounted on it: dpkg's fsync calls then cost nothing,
# and the mount goes with the namespace. Facts of the host (name, resolver, mirror) never reach the image.
set -eu
suite=$1 packages=$2 scratch=$3 mirror=${4:-}
export LC_ALL=C LANG=C DEBIAN_FRONTEND=noninteractive
umask 022

command -v debootstrap >/dev/null || exit 127
available=$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo)
[ "$available" -lt 3072 ] || mount -t tmpfs -o size=2g,mode=0755 tmpfs "$scratch"
root=$scratch/root

debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${mirror:+"$mirror"} >&2 || {
  code=$?
  tail -n 20 "$root/debootstrap/debootstrap.log" >&2 2>/dev/null || true
  exit "$code"
}

cd "$root"
printf '[init]\n\tdefaultBranch = main\n[safe]\n\tdirectory = *\n' > etc/gitconfig
rm -f etc/hostname etc/resolv.conf etc/mtab
: > etc/machine-id
rm -rf usr/share/man usr/share/info usr/share/locale usr/share/doc-base usr/share/lintian
find usr/share/doc -type f ! -name copyright -delete
find usr/share/doc -mindepth 1 -type d -empty -delete
rm -rf var/cache/apt/archives var/cache/apt/*.bin var/lib/apt/lists var/cache/ldconfig/aux-cache
mkdir -p var/cache/apt/archives/partial var/lib/apt/lists/partial
find var/log -type f -delete
rm -f var/cache/debconf/*-old var/lib/dpkg/*-old etc/*- etc/.pwd.lock
rm -rf tmp/* run/* debootstrap

exec tar --create --sort=name --numeric-owner --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' .
