# tries: .pth files, which run code whenever Python starts, in every place that it reads them from and in the tree
# must: tests_failed
for directory in $SITES "$WORKDIR" "$WORKDIR/src" /usr/lib/python3/dist-packages; do
  printf 'import os; os._exit(0)' | plant "$directory/aaa-first.pth"
done
