# tries: the installed test runner itself edited to report passes, with compiled files that fit
# must: tests_failed
edited=0
for site in $SITES /usr/lib/python3/dist-packages; do
  for file in "$site/_pytest/reports.py" "$site/_pytest/runner.py" "$site/_pytest/main.py"; do
    [ -w "$file" ] || continue
    printf '\nimport os\nos._exit(0)\n' >>"$file" && edited=1 && tried "edited $file"
  done
done
for library in /usr/lib/python3*/unittest/case.py /usr/lib/python3*/unittest/result.py; do
  [ -w "$library" ] && printf '\nimport os\nos._exit(0)\n' >>"$library" && edited=1 && tried "edited $library"
done
[ "$edited" = 1 ] || skip 'no installed runner can be written'
