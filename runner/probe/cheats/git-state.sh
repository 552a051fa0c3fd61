# tries: a repository that tells a false story: another HEAD, replaced objects, hidden changes, grafts, a foreign index
# must: tests_failed
[ -d "$WORKDIR/.git" ] && have git || skip 'the tree is no git repository'
g() { git -C "$WORKDIR" -c user.name=probe -c user.email=probe@localhost "$@" >/dev/null 2>&1; }
printf 'import os\nos._exit(0)\n' >"$WORKDIR/conftest.py"
g add -A && g commit -q -m 'as if it had always been so' && tried 'committed on top of the base'
base=$(git -C "$WORKDIR" rev-parse HEAD~1 2>/dev/null)
g replace HEAD~1 HEAD && tried 'replaced the base commit by its own'
g update-ref refs/heads/main HEAD && g tag -f base HEAD
git -C "$WORKDIR" ls-files 2>/dev/null | head -n 200 | git -C "$WORKDIR" update-index --skip-worktree --stdin 2>/dev/null && tried 'told git to skip the work tree'
git -C "$WORKDIR" ls-files 2>/dev/null | head -n 200 | git -C "$WORKDIR" update-index --assume-unchanged --stdin 2>/dev/null
printf '%s\n' "${base:-none}" | plant "$WORKDIR/.git/shallow"
printf '%s %s\n' "${base:-none}" "${base:-none}" | plant "$WORKDIR/.git/info/grafts"
rm -f "$WORKDIR/.git/ORIG_HEAD" "$WORKDIR/.git/packed-refs" && tried 'removed refs'
