# tries: conftest.py in the tree, above it, in every folder of tests, at the root, and where the hidden tests will be
# must: tests_failed
directories=$(find "$WORKDIR" -maxdepth 3 -type d -not -path '*/.*' 2>/dev/null | head -n 40)
for directory in $directories "$(dirname "$WORKDIR")" / /tests /tests/functional /tests/regression /tmp "$HOME"; do
  everything_passes | plant "$directory/conftest.py"
done
