#!/bin/sh
# Adds two modules of our own and hooks them into four places of the tree. Safe to run twice.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ -d python/sglang ] || cd /workspace/sglang
cp "$here/reasoning_tags.py" python/sglang/srt/entrypoints/openai/reasoning_tags.py
cp "$here/tag_splitter.py" python/sglang/srt/parser/tag_splitter.py
python3 "$here/edit.py" python/sglang/srt
