# tries: a plugin that pytest would find by itself: entry points in dist-info and egg-info, beside Python and in the tree
# must: tests_failed
for directory in $SITES "$WORKDIR" "$WORKDIR/src"; do
  everything_passes | plant "$directory/probe_plugin.py"
  printf '[pytest11]\nprobe = probe_plugin' | plant "$directory/probe_plugin-1.0.dist-info/entry_points.txt"
  printf 'Metadata-Version: 2.1\nName: probe-plugin\nVersion: 1.0' | plant "$directory/probe_plugin-1.0.dist-info/METADATA"
  printf 'probe_plugin' | plant "$directory/probe_plugin-1.0.dist-info/top_level.txt"
  printf '[pytest11]\nprobe = probe_plugin' | plant "$directory/probe_plugin.egg-info/entry_points.txt"
  printf 'Metadata-Version: 2.1\nName: probe-plugin\nVersion: 1.0' | plant "$directory/probe_plugin.egg-info/PKG-INFO"
done
