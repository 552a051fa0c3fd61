"""No waiting, graphs, and the floors of speed. Every measurement is followed by a look at what was computed."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from reference import (  # noqa: E402
    assert_device,
    check,
    copy_bandwidth,
    counts,
    make,
    microseconds,
    outputs,
    random_counts,
    wall_microseconds,
)


@pytest.fixture(autouse=True)
def device():
    assert_device()


def kernel():
    from moe_kernels import silu_and_mul_masked_group_quant

    return silu_and_mul_masked_group_quant


def test_the_call_does_not_wait():
    run = kernel()
    x, masked_m, out = make(4, 16, 512), counts([16, 3, 0, 9]), outputs(4, 16, 512)
    run(x, masked_m, out=out)
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(x, masked_m, out=out)
        run(x, masked_m, scales_by_row=True, round_scale=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    check(*out, x, masked_m)


@pytest.mark.parametrize("scales_by_row", [False, True])
def test_a_graph_follows_its_inputs(scales_by_row):
    run = kernel()
    shape = (6, 48, 1024)
    x, masked_m = make(*shape), counts([0] * 6)
    out = outputs(*shape, scales_by_row=scales_by_row)
    run(x, masked_m, scales_by_row=scales_by_row, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x, masked_m, scales_by_row=scales_by_row, out=out)
    for seed in (1, 2, 3):
        x.copy_(make(*shape, seed=seed))
        masked_m.copy_(random_counts(6, 48, seed))
        fresh = outputs(*shape, scales_by_row=scales_by_row)
        out[0].view(torch.uint8).copy_(fresh[0].view(torch.uint8))
        out[1].copy_(fresh[1])
        graph.replay()
        check(*out, x, masked_m)


def test_other_streams():
    run = kernel()
    stream = torch.cuda.Stream()
    x, masked_m, out = make(4, 64, 512), counts([64, 1, 0, 9]), outputs(4, 64, 512)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x.mul_(2)
        run(x, masked_m, out=out)
    torch.cuda.current_stream().wait_stream(stream)
    check(*out, x, masked_m)


EXPERTS, ROWS, N = 32, 1024, 2048


def timed(counts_of_experts):
    run = kernel()
    x, out = make(EXPERTS, ROWS, N, spread=False), outputs(EXPERTS, ROWS, N)
    run(x, counts_of_experts, out=out)
    time = microseconds(lambda: run(x, counts_of_experts, out=out))
    wall = wall_microseconds(lambda: run(x, counts_of_experts, out=out))
    for expert in (0, 7, 31):
        part = slice(expert, expert + 1)
        check(out[0][part], out[1][part], x[part], counts_of_experts[part])
    return time, wall


def test_bandwidth():
    num_bytes = EXPERTS * ROWS * (N * 5 + N // 128 * 4)
    copy = copy_bandwidth(num_bytes)
    time, wall = timed(counts([ROWS] * EXPERTS))
    found = num_bytes / time
    print(f"{found / 1e6:.2f} TB/s, a copy {copy / 1e6:.2f} TB/s, {time:.0f} us")
    assert found >= 0.6 * copy
    # Warm or cold makes little difference for a third of a gigabyte: the two clocks must tell the same story.
    assert wall <= 1.5 * time and time <= 1.5 * wall


def test_padding_costs_little():
    full, _ = timed(counts([ROWS] * EXPERTS))
    part, _ = timed(counts([64] * EXPERTS))
    print(f"all rows {full:.0f} us, 64 of {ROWS} {part:.0f} us")
    assert part <= 0.2 * full


def test_small_batches_in_a_graph():
    run = kernel()
    x, out = make(8, 16, 2048), outputs(8, 16, 2048)
    masked_m = counts([1, 16, 3, 8, 2, 5, 9, 4])
    run(x, masked_m, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            run(x, masked_m, out=out)
    time = microseconds(graph.replay) / 20
    print(f"{time:.1f} us")
    check(*out, x, masked_m)
    assert time <= 12
