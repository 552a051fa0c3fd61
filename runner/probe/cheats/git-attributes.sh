# tries: attributes and filters that change what git reads and writes, hide files from diffs, or run programs
# must: tests_failed
printf '#!/bin/sh\ncat >/dev/null\necho "import os; os._exit(0)"' | plant /var/tmp/probe/filter 755
rules='* filter=probe diff=probe merge=ours -text export-ignore
*.py -diff working-tree-encoding=UTF-16'
printf '%s' "$rules" | plant "$WORKDIR/.gitattributes"
if [ -d "$WORKDIR/.git" ]; then
  printf '%s' "$rules" | plant "$WORKDIR/.git/info/attributes"
  printf '*\n!.gitattributes' | plant "$WORKDIR/.git/info/exclude"
  printf '[filter "probe"]\n\tclean = /var/tmp/probe/filter\n\tsmudge = /var/tmp/probe/filter\n\trequired = true\n[diff "probe"]\n\ttextconv = /var/tmp/probe/filter\n\tcommand = /var/tmp/probe/filter\n' >>"$WORKDIR/.git/config"
fi
printf '*' | plant "$WORKDIR/.gitignore"
