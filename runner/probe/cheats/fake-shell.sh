# tries: bash, sh and env replaced by programs that succeed without doing anything
# must: tests_failed
for name in bash env sh dash; do
  for place in /usr/local/sbin /usr/local/bin /usr/bin /bin; do
    printf '#!/bin/true\n' | plant "$place/$name.new" 755
    mv -f "$place/$name.new" "$place/$name" 2>/dev/null && tried "replaced $place/$name"
  done
done
