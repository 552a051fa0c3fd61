#!/bin/sh
# One module of our own, hooked into the frontend language by short anchors. Safe to run twice.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
package=${SGLANG_TREE:-/workspace/sglang}/python/sglang
cp "$here/parsed.py" "$package/lang/parsed.py"
python3 "$here/edit.py" "$package"
