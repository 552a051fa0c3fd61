#!/bin/sh
# Installs Debian's CPU build of torch. The two packages that hold it are pinned by version and hash (debs.lock); what they
# depend on follows Debian stable, as the base does. Nothing of apt's own state stays.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
packages=$(awk '{ print $1 "=" $2 }' /build/debs.lock)
apt-get -qq update
# shellcheck disable=SC2086 # one word a package
apt-get -qq install --no-install-recommends --download-only --yes $packages
while read -r name version hash; do
  file=$(find /var/cache/apt/archives -name "${name}_$(printf %s "$version" | sed 's/:/%3a/')_*.deb")
  echo "$hash  $file" | sha256sum --check --status || { echo "$name $version is not the package that was pinned" >&2; exit 1; }
done < /build/debs.lock
# shellcheck disable=SC2086
apt-get -qq install --no-install-recommends --yes $packages > /dev/null
rm -rf /usr/share/man /usr/share/info /usr/share/locale /usr/share/lintian /usr/share/doc-base
find /usr/share/doc -type f ! -name copyright -delete
find /usr/share/doc -mindepth 1 -type d -empty -delete
rm -rf /var/cache/apt/archives /var/cache/apt/*.bin /var/lib/apt/lists /var/cache/ldconfig/aux-cache
mkdir -p /var/cache/apt/archives/partial /var/lib/apt/lists/partial
find /var/log -type f -delete
rm -f /var/cache/debconf/*-old /var/lib/dpkg/*-old /etc/*-
