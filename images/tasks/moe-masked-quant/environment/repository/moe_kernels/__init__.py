from moe_kernels.activation import silu_and_mul
from moe_kernels.quant import FP8_MAX, MIN_AMAX, group_quant

__all__ = ["FP8_MAX", "MIN_AMAX", "group_quant", "silu_and_mul"]
