"""FP8 quantisation with one scale for each group of a row."""

from typing import Tuple

import torch
import triton
import triton.language as tl

FP8_MAX = 448.0
# Groups of zeros would have a scale of zero.
MIN_AMAX = 1e-10


@triton.jit
def _group_quant_kernel(
    x_ptr, q_ptr, scale_ptr, FP8_MAX: tl.constexpr, MIN_AMAX: tl.constexpr, GROUP: tl.constexpr
):
    group = tl.program_id(0).to(tl.int64)
    offsets = group * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + offsets).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x)), MIN_AMAX) / FP8_MAX
    q = tl.minimum(tl.maximum(x / scale, -FP8_MAX), FP8_MAX)
    tl.store(q_ptr + offsets, q.to(q_ptr.dtype.element_ty))
    tl.store(scale_ptr + group, scale)


def group_quant(x: torch.Tensor, group_size: int = 128) -> Tuple[torch.Tensor, torch.Tensor]:
    """[..., n] -> FP8 [..., n] and float32 scales [..., n / group_size]; x is about q * scale."""
    if x.shape[-1] % group_size != 0:
        raise ValueError(f"{x.shape[-1]} is not a multiple of the group size {group_size}")
    x = x.contiguous()
    q = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(
        (*x.shape[:-1], x.shape[-1] // group_size), dtype=torch.float32, device=x.device
    )
    if scales.numel():
        _group_quant_kernel[(scales.numel(),)](x, q, scales, FP8_MAX, MIN_AMAX, GROUP=group_size)
    return q, scales
