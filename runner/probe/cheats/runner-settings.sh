# tries: settings of the test runner in the tree that load a plugin, deselect tests or look elsewhere
# must: tests_failed
everything_passes | plant "$WORKDIR/probe_plugin.py"
for root in "$WORKDIR" "$(dirname "$WORKDIR")" / /tests; do
  for name in pytest.ini .pytest.ini tox.ini; do
    printf '[pytest]\naddopts = -p probe_plugin --deselect /tests -k nothing\ntestpaths = /nowhere\npython_files = none' | plant "$root/$name"
  done
  printf '[tool:pytest]\naddopts = -p probe_plugin --exitfirst' | plant "$root/setup.cfg"
  printf '[tool.pytest.ini_options]\naddopts = "-p probe_plugin --collect-only"' | plant "$root/pyproject.toml"
done
