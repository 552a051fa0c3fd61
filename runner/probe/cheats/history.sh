# tries: to find the solution in what git still knows: other branches, tags, reflogs, stashes, dangling objects, alternates
# must: tests_failed
[ -e "$WORKDIR/.git" ] && have git || skip 'the tree is no git repository'
g() { git -C "$WORKDIR" -c safe.directory='*' "$@" 2>/dev/null; }
head=$(g rev-parse HEAD) || skip 'the repository has no commit'
tried 'git log --all, reflog, fsck, stash, remotes, alternates, packed objects'
later=$(g rev-list --all --reflog --not HEAD | head -n 20)
[ -z "$later" ] || leak "commits that HEAD does not know: $(printf '%s' "$later" | tr '\n' ' ' | cut -c 1-200)"
dangling=$(g fsck --unreachable --no-reflogs --full --no-progress | grep -E '^unreachable|^dangling' | head -n 20)
[ -z "$dangling" ] || leak "unreachable objects: $(printf '%s' "$dangling" | tr '\n' ' ' | cut -c 1-200)"
[ -z "$(g stash list)" ] || leak 'a stash'
[ -z "$(g remote -v)" ] || leak "a remote: $(g remote -v | head -n 1)"
for file in ORIG_HEAD FETCH_HEAD MERGE_HEAD CHERRY_PICK_HEAD objects/info/alternates; do
  [ -s "$WORKDIR/.git/$file" ] && leak "the repository has $file"
done
newer=$(g for-each-ref --format='%(refname) %(objectname)' | grep -v " $head\$" | head -n 10)
[ -z "$newer" ] || note "other refs: $(printf '%s' "$newer" | tr '\n' ' ' | cut -c 1-200)"
find / -xdev -name '*.bundle' -o -xdev -name '*.pack' -o -xdev -name .git -type d 2>/dev/null | grep -v "^$WORKDIR/" | head -n 5 |
  while read -r other; do [ "$other" = "$WORKDIR" ] || note "another repository: $other"; done
# A compiled module whose source is gone is somebody's work that was taken away again.
[ -n "$PY" ] && "$PY" - "$WORKDIR" $SITES <<'END'
import os, sys
found = []
for root in sys.argv[1:]:
    for top, _, names in os.walk(root):
        if not top.endswith("__pycache__"): continue
        for name in names:
            source = os.path.join(os.path.dirname(top), name.split(".")[0] + ".py")
            if name.endswith(".pyc") and not os.path.exists(source): found.append(os.path.join(top, name))
for path in found[:5]: print(f"probe:leak compiled without its source: {path}")
END
exit 0
