import torch

from moe_kernels import group_quant, silu_and_mul


def test_silu_and_mul():
    x = torch.randn(7, 512, device="cuda", dtype=torch.bfloat16)
    gate, up = x.float().chunk(2, dim=-1)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(silu_and_mul(x).float(), expected, rtol=1e-2, atol=1e-2)


def test_group_quant():
    x = torch.randn(7, 512, device="cuda", dtype=torch.bfloat16)
    q, scales = group_quant(x)
    back = q.float() * scales.repeat_interleave(128, dim=-1)
    torch.testing.assert_close(back, x.float(), rtol=0.07, atol=0.03)
