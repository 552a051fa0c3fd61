#!/bin/sh
# One module, exported from the package. Safe to run twice.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
package=${KERNELS_TREE:-/workspace/moe-kernels}/moe_kernels
cp "$here/masked_quant.py" "$package/masked_quant.py"
grep -q masked_quant "$package/__init__.py" || cat >> "$package/__init__.py" <<'PY'

from moe_kernels.masked_quant import silu_and_mul_masked_group_quant  # noqa: E402

__all__.append("silu_and_mul_masked_group_quant")
PY
