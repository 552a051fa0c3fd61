# tries: hard links in the tree to files outside of it, so that a copy carries or changes what it should not
# must: tests_failed
for file in /etc/passwd /etc/shadow /etc/hosts /closedbook-script/script.sh /usr/bin/python3 /proc/1/environ; do
  ln -f "$file" "$WORKDIR/$(basename "$file").hard" 2>/dev/null && tried "linked $file"
done
first=$(find "$WORKDIR" -type f -not -path '*/.git/*' 2>/dev/null | head -n 1)
[ -z "$first" ] || for number in $(seq 1 200); do ln -f "$first" "$WORKDIR/hard-$number" 2>/dev/null; done
[ -e "$WORKDIR/hard-200" ] && tried '200 links to one file'
exit 0
