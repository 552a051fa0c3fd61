# tries: modules named like the test runner's own and like the standard library's, where the product is imported from
# must: tests_failed
roots="$WORKDIR $WORKDIR/src /tests"
while read -r file; do [ -z "$file" ] || roots="$roots $(dirname "$(dirname "$file")")"; done <<<"$PACKAGES"
for root in $roots; do
  for name in pytest.py _pytest/__init__.py pluggy.py iniconfig.py unittest/__init__.py json.py re.py xml/__init__.py typing.py; do
    printf 'import os\nos._exit(0)' | plant "$root/$name"
  done
done
