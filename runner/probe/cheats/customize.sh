# tries: sitecustomize.py and usercustomize.py, which Python imports by itself, everywhere on its path and in the tree
# must: tests_failed
for directory in $SITES "$WORKDIR" "$WORKDIR/src" "$WORKDIR/python" /tests "$HOME" /usr/lib/python3; do
  for name in sitecustomize usercustomize; do
    printf 'import os\nos._exit(0)' | plant "$directory/$name.py"
  done
done
