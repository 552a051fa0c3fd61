"""Values, layouts, padding and arguments."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from reference import (  # noqa: E402
    DEVICE,
    MIN_AMAX,
    assert_device,
    check,
    counts,
    make,
    outputs,
    random_counts,
)


@pytest.fixture(autouse=True)
def device():
    assert_device()


def run(*args, **options):
    from moe_kernels import silu_and_mul_masked_group_quant

    return silu_and_mul_masked_group_quant(*args, **options)


SHAPES = [(1, 1, 128), (4, 64, 2048), (3, 37, 384), (8, 16, 7168), (2, 300, 1408)]


@pytest.mark.parametrize("scales_by_row", [False, True])
@pytest.mark.parametrize("round_scale", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, dtype, round_scale, scales_by_row):
    x = make(*shape, dtype=dtype)
    masked_m = random_counts(shape[0], shape[1])
    out = outputs(*shape, scales_by_row=scales_by_row)
    options = dict(round_scale=round_scale, scales_by_row=scales_by_row)
    got = run(x, masked_m, out=out, **options)
    assert got[0] is out[0] and got[1] is out[1]
    check(*out, x, masked_m, round_scale=round_scale)


@pytest.mark.parametrize("group_size", [32, 64, 128, 256])
def test_group_sizes(group_size):
    x = make(3, 20, 768)
    masked_m = counts([20, 7, 0])
    out = outputs(3, 20, 768, group_size)
    run(x, masked_m, group_size, out=out)
    check(*out, x, masked_m, group_size)


@pytest.mark.parametrize("values", [[0, 0, 0], [9, 9, 9], [0, 9, 1]], ids=str)
def test_counts(values):
    x = make(3, 9, 256)
    out = outputs(3, 9, 256)
    run(x, counts(values), out=out)
    check(*out, x, counts(values))


def test_padding_is_not_read():
    x = make(2, 8, 256)
    x[0, 3:] = float("nan")
    x[1, 5:] = float("inf")
    out = outputs(2, 8, 256)
    run(x, counts([3, 5]), out=out)
    clean = torch.nan_to_num(x, nan=0.0, posinf=0.0)
    check(*out, clean, counts([3, 5]))


def test_one_bad_group_spoils_no_other():
    x = make(1, 4, 512)
    x[0, 1, 130] = float("nan")
    q, scales = run(x, counts([4]))
    again = x.clone()
    again[0, 1, 128:256] = 0
    want_q, want_scales = run(again, counts([4]))
    keep = torch.ones_like(scales, dtype=torch.bool)
    keep[0, 1, 1] = False
    assert torch.equal(scales[keep], want_scales[keep])
    same = q.view(torch.uint8) == want_q.view(torch.uint8)
    assert same[keep.repeat_interleave(128, -1)].all()


def test_large_and_small_values():
    x = make(1, 3, 256, spread=False)
    x[0, 0] = 0
    x[0, 1, :256] = -30000.0  # the gate is shut: exp overflows, the value is -0
    x[0, 2, 256:] *= 2.0**-20
    out = outputs(1, 3, 256)
    run(x, counts([3]), out=out)
    check(*out, x, counts([3]))
    assert torch.allclose(out[1][0, 0], torch.full_like(out[1][0, 0], MIN_AMAX / 448.0))


def test_values_are_not_rounded_in_between():
    x = make(4, 64, 1024, spread=False)
    q, scales = run(x, counts([64] * 4))
    y = torch.nn.functional.silu(x.double()[..., :1024]) * x.double()[..., 1024:]
    back = q.double() * scales.double().repeat_interleave(128, -1)
    rounded = y.bfloat16().double()
    exact = (back - y).pow(2).mean()
    assert exact <= (back - rounded).pow(2).mean()


def test_powers_of_two_stay():
    x = torch.zeros(1, 2, 256, device=DEVICE, dtype=torch.float16)
    x[0, 0, 0], x[0, 0, 128] = 40.0, 448.0 / 40.0  # amax is 448 to within a rounding
    x[0, 1, 0], x[0, 1, 128] = 40.0, 0.7
    _, scales = run(x, counts([2]), round_scale=True)
    for value in scales.flatten().tolist():
        assert torch.tensor(value).log2().item().is_integer()


def test_layout_by_row():
    _, scales = run(make(2, 37, 512), counts([37, 1]), scales_by_row=True)
    assert scales.shape == (2, 37, 4)
    assert (scales.stride(1), scales.stride(2)) == (1, 40)
    _, scales = run(make(2, 37, 512), counts([37, 1]))
    assert scales.is_contiguous()


def test_both_layouts_agree():
    x, masked_m = make(3, 21, 640), counts([21, 0, 11])
    one, two = outputs(3, 21, 640), outputs(3, 21, 640, scales_by_row=True)
    run(x, masked_m, out=one)
    run(x, masked_m, out=two, scales_by_row=True)
    assert torch.equal(one[1], two[1])
    assert torch.equal(one[0].view(torch.uint8), two[0].view(torch.uint8))


@pytest.mark.parametrize("kind", ["rows", "experts", "offset", "wide"])
def test_x_may_have_strides(kind):
    whole = make(4, 32, 512)
    x = {
        "rows": whole[:, ::2],
        "experts": whole[::2],
        "offset": whole[:, 3:19],
        "wide": torch.cat((whole, whole), dim=-1)[..., :1024],
    }[kind]
    masked_m = random_counts(x.shape[0], x.shape[1], seed=3)
    out = outputs(x.shape[0], x.shape[1], 512)
    run(x, masked_m, out=out)
    check(*out, x, masked_m)


@pytest.mark.parametrize("shape", [(0, 4, 128), (2, 0, 128), (2, 4, 0)], ids=str)
def test_empty_dimensions(shape):
    q, scales = run(make(*shape), counts([0] * shape[0]))
    assert q.shape == shape and scales.shape == (*shape[:2], shape[2] // 128)


def test_new_outputs_have_the_right_types():
    q, scales = run(make(2, 4, 256), counts([4, 4]))
    assert (q.dtype, scales.dtype) == (torch.float8_e4m3fn, torch.float32)
    assert q.device.type == scales.device.type == DEVICE


def wrong_arguments():
    x, m = make(2, 4, 256), counts([1, 2])
    q, scales = outputs(2, 4, 256)
    by_row = outputs(2, 4, 256, scales_by_row=True)[1]
    yield "x", (x[0], m), {}
    yield "x", (x.float(), m), {}
    yield "x", (x[..., :-1], m), {}
    yield "x", (x.transpose(1, 2).contiguous().transpose(1, 2), m), {}
    yield "masked_m", (x, m[:1]), {}
    yield "masked_m", (x, m.long()), {}
    yield "masked_m", (x, m[None]), {}
    yield "masked_m", (x, m.cpu() if DEVICE == "cuda" else m.to("meta")), {}
    for group_size in (0, 16, 48, 512, -128):
        yield "group_size", (x, m, group_size), {}
    yield "group_size", (make(2, 4, 192), m, 128), {}
    yield "out", (x, m), {"out": (q[:1], scales)}
    yield "out", (x, m), {"out": (q.view(torch.uint8), scales)}
    yield "out", (x, m), {"out": (q.transpose(0, 1).contiguous().transpose(0, 1), scales)}
    yield "out", (x, m), {"out": (q, scales[..., :1])}
    yield "out", (x, m), {"out": (q, scales.double())}
    yield "out", (x, m), {"out": (q, by_row)}
    yield "out", (x, m), {"out": (q, scales), "scales_by_row": True}


@pytest.mark.parametrize("index", range(21))
def test_wrong_arguments(index):
    name, args, options = list(wrong_arguments())[index]
    with pytest.raises(ValueError, match=f"^{name}\\b"):
        run(*args, **options)


def test_there_are_as_many_wrong_arguments_as_tests():
    from moe_kernels import silu_and_mul_masked_group_quant  # noqa: F401

    assert len(list(wrong_arguments())) == 21
