#!/bin/sh
# One module of our own, hooked into RadixCache by short anchors. Safe to run twice.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${SGLANG_TREE:-/workspace/sglang}/python/sglang/srt/mem_cache
cp "$here/namespace_floors.py" "$cache/namespace_floors.py"
python3 "$here/edit.py" "$cache/radix_cache.py"
