"""SiLU, multiplication and FP8 group quantisation of the real rows of padded experts, in one pass over memory.

A program has one expert and a slice of its columns, and strides over that expert's real rows: the count is read on the device, so
padding costs a load of four bytes. The grid is as large as the machine, not as the padding.
"""

from typing import Optional, Tuple

import torch
import triton
import triton.language as tl

from moe_kernels.quant import FP8_MAX, MIN_AMAX


@triton.jit
def _kernel(
    x_ptr,
    masked_m_ptr,
    q_ptr,
    scale_ptr,
    n,
    x_expert,
    x_row,
    q_expert,
    q_row,
    scale_expert,
    scale_row,
    scale_group,
    FP8_MAX: tl.constexpr,
    MIN_AMAX: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    ROUND: tl.constexpr,
):
    columns_block = tl.program_id(0)
    first = tl.program_id(1)
    step = tl.num_programs(1)
    expert = tl.program_id(2).to(tl.int64)
    count = tl.load(masked_m_ptr + expert)

    groups = columns_block * GROUPS + tl.arange(0, GROUPS)
    columns = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    mask = columns < n
    group_mask = groups * GROUP < n
    for row_index in range(first, count, step):
        row = expert * 0 + row_index  # 64 bits: a row's place may lie beyond two billion elements
        source = x_ptr + expert * x_expert + row * x_row + columns
        gate = tl.load(source, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(source + n, mask=mask, other=0.0).to(tl.float32)
        y = gate / (1.0 + tl.exp(-gate)) * up
        scale = tl.maximum(tl.max(tl.abs(y), axis=1), MIN_AMAX) / FP8_MAX
        if ROUND:
            # The smallest power of two that is not below: the exponent, and one more if any bit of the fraction is set.
            bits = scale.to(tl.int32, bitcast=True)
            bits = (bits + 0x7FFFFF) & 0x7F800000
            scale = bits.to(tl.float32, bitcast=True)
        value = y / scale[:, None]
        value = tl.minimum(tl.maximum(value, -FP8_MAX), FP8_MAX)
        target = q_ptr + expert * q_expert + row * q_row + columns
        tl.store(target, value.to(q_ptr.dtype.element_ty), mask=mask)
        scales = scale_ptr + expert * scale_expert + row * scale_row + groups * scale_group
        tl.store(scales, scale, mask=group_mask)


def silu_and_mul_masked_group_quant(
    x: torch.Tensor,
    masked_m: torch.Tensor,
    group_size: int = 128,
    round_scale: bool = False,
    scales_by_row: bool = False,
    out: Optional[Tuple[torch.Tensor, torch.Tensor]] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """FP8 values [experts, rows, n] and scales [experts, rows, n / group_size] of the rows below masked_m."""
    _check_input(x, masked_m, group_size)
    masked_m = masked_m.contiguous()
    experts, rows, n = x.shape[0], x.shape[1], x.shape[2] // 2
    if out is None:
        out = _allocate(experts, rows, n, group_size, scales_by_row, x.device)
    else:
        _check_out(out, experts, rows, n, group_size, scales_by_row, x.device)
    q, scales = out
    if q.numel() == 0:
        return out

    per_program = max(1, min(triton.next_power_of_2(n // group_size), 1024 // group_size))
    blocks = triton.cdiv(n // group_size, per_program)
    # About 16 programs of 4 warps fit on each of 132 processors; more would only read counts.
    row_programs = max(1, min(rows, triton.cdiv(132 * 16, blocks * experts)))
    _kernel[(blocks, row_programs, experts)](
        x,
        masked_m,
        q,
        scales,
        n,
        x.stride(0),
        x.stride(1),
        q.stride(0),
        q.stride(1),
        scales.stride(0),
        scales.stride(1),
        scales.stride(2),
        FP8_MAX=FP8_MAX,
        MIN_AMAX=MIN_AMAX,
        GROUP=group_size,
        GROUPS=per_program,
        ROUND=round_scale,
        num_warps=4,
    )
    return out


def _scale_strides(rows: int, groups: int, by_row: bool) -> Tuple[int, int, int]:
    if not by_row:
        return rows * groups, groups, 1
    column = (rows + 3) // 4 * 4
    return column * groups, 1, column


def _allocate(experts, rows, n, group_size, by_row, device):
    groups = n // group_size
    q = torch.empty((experts, rows, n), dtype=torch.float8_e4m3fn, device=device)
    strides = _scale_strides(rows, groups, by_row)
    storage = torch.empty(experts * strides[0], dtype=torch.float32, device=device)
    return q, storage.as_strided((experts, rows, groups), strides)


def _check_input(x, masked_m, group_size):
    if x.dim() != 3:
        raise ValueError(f"x must have three dimensions, got {x.dim()}")
    if x.dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"x must be bfloat16 or float16, got {x.dtype}")
    if x.shape[2] % 2 != 0:
        raise ValueError(f"x must have an even last dimension, got {x.shape[2]}")
    if x.shape[2] > 1 and x.stride(2) != 1:
        raise ValueError("x must be contiguous in its last dimension")
    if masked_m.shape != (x.shape[0],):
        raise ValueError(f"masked_m must have the shape ({x.shape[0]},)")
    if masked_m.dtype != torch.int32:
        raise ValueError(f"masked_m must be int32, got {masked_m.dtype}")
    if masked_m.device != x.device:
        raise ValueError(f"masked_m must be on {x.device}, got {masked_m.device}")
    if group_size not in (32, 64, 128, 256) or (x.shape[2] // 2) % group_size != 0:
        raise ValueError(
            f"group_size must be a power of two from 32 to 256 that divides n, got {group_size}"
        )


def _check_out(out, experts, rows, n, group_size, by_row, device):
    q, scales = out
    groups = n // group_size
    strides = _scale_strides(rows, groups, by_row)
    relevant = [i for i, size in enumerate((experts, rows, groups)) if size > 1]
    if (
        q.shape != (experts, rows, n)
        or q.dtype != torch.float8_e4m3fn
        or q.device != device
        or not q.is_contiguous()
    ):
        raise ValueError("out: q must be contiguous float8_e4m3fn [experts, rows, n] on the device of x")
    if (
        scales.shape != (experts, rows, groups)
        or scales.dtype != torch.float32
        or scales.device != device
        or any(scales.stride(i) != strides[i] for i in relevant)
    ):
        raise ValueError("out: scales must be float32 with the strides that scales_by_row asks for")
