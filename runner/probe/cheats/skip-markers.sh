# tries: tests left out or skipped by collect_ignore, markers, and a hook that empties the list of tests
# must: tests_failed
for root in "$WORKDIR" "$(dirname "$WORKDIR")" / /tests /tests/functional; do
  printf 'collect_ignore_glob = ["*"]\n\n\ndef pytest_collection_modifyitems(items):\n    items.clear()\n\n\ndef pytest_ignore_collect():\n    return True' |
    plant "$root/conftest.py"
  printf '[pytest]\naddopts = --ignore=/tests --ignore-glob=*\nnorecursedirs = *' | plant "$root/pytest.ini"
done
