#!/bin/sh
# One module of our own, registered where the other templates are. Safe to run twice.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
lang=${SGLANG_TREE:-/workspace/sglang}/python/sglang/lang
cp "$here/vesper_template.py" "$lang/vesper_template.py"
python3 "$here/register.py" "$lang/chat_template.py"
