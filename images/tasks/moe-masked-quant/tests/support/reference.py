"""What the kernel has to compute, in float64 and slowly; and how long something takes on the device."""

import time

import torch

DEVICE = "cuda"
FP8_MAX = 448.0
MIN_AMAX = 1e-10
SENTINEL_Q = 0x55
SENTINEL_SCALE = -7.0


def assert_device():
    assert torch.cuda.is_available(), "these tests need the GPU of their task"


def make(experts, rows, n, dtype=torch.bfloat16, seed=0, spread=True):
    """Inputs whose groups have very different magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(experts, rows, 2 * n, generator=generator)
    if spread:
        x = x * torch.exp2(torch.randint(-6, 5, (experts, rows, 1), generator=generator))
    return x.to(dtype).to(DEVICE)


def counts(values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def random_counts(experts, rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return counts(torch.randint(0, rows + 1, (experts,), generator=generator).tolist())


def outputs(experts, rows, n, group_size=128, scales_by_row=False):
    """A pair to write into, full of sentinels."""
    groups = n // group_size
    q = torch.full((experts, rows, n), SENTINEL_Q, dtype=torch.uint8, device=DEVICE)
    q = q.view(torch.float8_e4m3fn)
    if scales_by_row:
        column = (rows + 3) // 4 * 4
        storage = torch.full((experts * groups * column,), SENTINEL_SCALE, device=DEVICE)
        strides = (groups * column, 1, column)
        return q, storage.as_strided((experts, rows, groups), strides)
    return q, torch.full((experts, rows, groups), SENTINEL_SCALE, device=DEVICE)


def expected(x, group_size=128, round_scale=False):
    """(y, scale) in float64: y of each element and the scale of each group."""
    gate, up = x.double().chunk(2, dim=-1)
    y = gate / (1 + torch.exp(-gate)) * up
    groups = y.unflatten(-1, (-1, group_size))
    scale = groups.abs().amax(-1).clamp(min=MIN_AMAX) / FP8_MAX
    if round_scale:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    return y, scale


def spacing(value):
    """The distance of neighbouring FP8 numbers at this magnitude."""
    exponent = torch.floor(torch.log2(value.abs().clamp(min=2.0**-6)))
    return torch.exp2(exponent - 3)


def check(q, scales, x, masked_m, group_size=128, round_scale=False):
    """Real rows are right, padding is as it was."""
    y, scale = expected(x, group_size, round_scale)
    rows = torch.arange(x.shape[1], device=x.device)
    real = rows[None, :] < masked_m[:, None]
    got = scales.double()
    if round_scale:
        # A group whose exact scale is a hair from a power of two may fall on either side of it.
        ratio = got[real] / scale[real]
        exact = expected(x, group_size)[1][real]
        near = (torch.log2(exact) - torch.log2(exact).round()).abs() < 1e-5
        assert ((ratio == 1) | (near & ((ratio == 0.5) | (ratio == 2)))).all()
    else:
        torch.testing.assert_close(got[real], scale[real], rtol=2e-6, atol=0)
    # From the scale that was returned on, so that one rounding remains: that to FP8.
    wanted = y.unflatten(-1, (-1, group_size)) / got.unsqueeze(-1)
    wanted = wanted.clamp(-FP8_MAX, FP8_MAX).flatten(-2)
    error = (q.double() - wanted).abs()
    allowed = spacing(wanted) * 0.5 * (1 + 1e-3) + wanted.abs() * 1e-5
    assert (error <= allowed)[real].all(), "not the nearest FP8 numbers"
    assert (q.view(torch.uint8)[~real] == SENTINEL_Q).all(), "padding of q was written"
    assert (scales[~real] == SENTINEL_SCALE).all(), "padding of scales was written"


def microseconds(function, repeats=40):
    """Median time on the device, each time with a cold cache, beside the host's own clock over all of them."""
    flush = torch.empty(256 * 2**20, dtype=torch.uint8, device=DEVICE)
    for _ in range(3):
        function()
    times = []
    for _ in range(repeats):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000)
    return sorted(times)[repeats // 2]


def wall_microseconds(function, repeats=200):
    """Time by the host's clock, launches included, for work long enough to hide them."""
    function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats * 1e6


def copy_bandwidth(num_bytes):
    """Bytes per microsecond of a device copy that reads and writes this much in all."""
    source = torch.empty(num_bytes // 2, dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    return num_bytes / microseconds(lambda: target.copy_(source))
