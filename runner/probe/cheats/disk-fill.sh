# tries: room taken away, in bytes and in files, from whatever has to be written afterwards
# must: tests_failed patch_too_large too_many_files
head -c 67108864 /dev/zero >/var/tmp/fill 2>/dev/null && tried '64 MiB in /var/tmp'
head -c 67108864 /dev/zero >/dev/shm/fill 2>/dev/null && tried 'shared memory'
mkdir -p /var/tmp/many && for number in $(seq 1 2000); do : >"/var/tmp/many/$number"; done && tried '2000 files'
truncate -s 1T "$WORKDIR/sparse" 2>/dev/null && rm -f "$WORKDIR/sparse"
head -c 8388608 /dev/urandom >"$WORKDIR/large" 2>/dev/null && tried '8 MiB in the tree'
exit 0
