#!/bin/bash
# The reference solution: one new module, and two lines in the registry. May be run again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
package=${SGLANG_TREE:-/workspace/sglang}/python/sglang/srt/function_call

cp "$here/orrery_detector.py" "$package/orrery_detector.py"
python3 "$here/register.py" "$package/function_call_parser.py"
