#!/bin/sh
# One module of our own, hooked into the frontend language by short anchors. Safe to run twice.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
lang=${SGLANG_TREE:-/workspace/sglang}/python/sglang/lang
cp "$here/batch.py" "$lang/batch.py"
python3 "$here/edit.py" "$lang"
