"""The two kernels that exist."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from reference import DEVICE, assert_device, make  # noqa: E402

from moe_kernels import FP8_MAX, MIN_AMAX, group_quant, silu_and_mul  # noqa: E402


@pytest.fixture(autouse=True)
def device():
    assert_device()


def data(shape, dtype=torch.bfloat16):
    *rows, n = shape
    return make(1, max(1, int(torch.tensor(rows).prod())), n // 2, dtype).reshape(shape)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(4, 256), (2, 3, 768), (1, 6000)], ids=str)
def test_silu_and_mul(shape, dtype):
    x = data(shape, dtype)
    gate, up = x.float().chunk(2, dim=-1)
    expected = torch.nn.functional.silu(gate) * up
    found = silu_and_mul(x)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("group_size", [32, 128])
@pytest.mark.parametrize("shape", [(4, 256), (2, 3, 768)], ids=str)
def test_group_quant(shape, group_size):
    x = data(shape)
    q, scales = group_quant(x, group_size)
    groups = x.float().unflatten(-1, (-1, group_size))
    torch.testing.assert_close(
        scales, groups.abs().amax(-1) / FP8_MAX, rtol=1e-6, atol=0
    )
    back = q.float() * scales.repeat_interleave(group_size, -1)
    limit = scales.repeat_interleave(group_size, -1) * 16.1
    assert ((back - x.float()).abs() <= limit).all()


def test_zeros():
    q, scales = group_quant(torch.zeros(2, 128, device=DEVICE, dtype=torch.bfloat16))
    assert (q.float() == 0).all()
    assert torch.allclose(scales, torch.full_like(scales, MIN_AMAX / FP8_MAX))


def test_errors():
    with pytest.raises(ValueError, match="must be even"):
        silu_and_mul(torch.zeros(2, 3, device=DEVICE))
    with pytest.raises(ValueError, match="not a multiple"):
        group_quant(torch.zeros(2, 130, device=DEVICE))


def test_empty():
    assert silu_and_mul(torch.zeros(0, 8, device=DEVICE)).shape == (0, 4)
    assert group_quant(torch.zeros(0, 256, device=DEVICE))[1].shape == (0, 2)
